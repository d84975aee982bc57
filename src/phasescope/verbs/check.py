"""Hold the engine that runs a local model to every invariance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import checking as checks
from ..catalog import BACKENDS
from ..checking.cases import ENGINE_STRIDES
from ..checking.effect import read_effect
from ..checkpoints.grids import read_target
from .answerers import checkpoint


def check(
    model: str,
    *,
    strides: Sequence[int] = (),
    run: Path | None = None,
    condition: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    **settings: Any,
) -> checks.Verdict:
    """Hold the engine that runs a local model to every invariance: `phasescope check`.

    Args:
        model: a zoo name or a checkpoint folder.
        strides: beside those of the model's own grids, and pages of 16 and 64 tokens.
        run: a run of `measure` with the same model.
        condition: which condition of it.
        seed: of every draw.
        device: where the model runs.
        dtype: a torch dtype by name; `auto` keeps the checkpoint's own.
        trust_remote_code: allow a checkpoint to run code of its own.
        **settings: as `phasescope.checking.check` has them.

    Raises:
        UsageError: for a model that cannot be loaded, or settings that do not fit.
    """
    from ..checking.local import LocalEngine, require_dtype  # needs torch, and checking a server does not

    require_dtype(dtype)
    name, folder = checkpoint(model)
    backend = BACKENDS.load("transformers").load(
        folder, name=name, device=device, dtype=dtype, trust_remote_code=trust_remote_code
    )
    digest = backend.describe()["digest"]
    effect = None if run is None else read_effect(run, condition=condition, digest=digest, seed=seed)
    engine = LocalEngine(backend.model, name=name, facts={"digest": digest})
    around = [*strides, *read_target(folder).strides, *ENGINE_STRIDES]
    return checks.check(engine, strides=around, seed=seed, effect=effect, **settings)
