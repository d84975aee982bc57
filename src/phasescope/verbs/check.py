"""Hold an engine to every invariance: the one that runs a local model, or the one behind a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import checking
from ..catalog import BACKENDS
from ..checking.cases import ENGINE_STRIDES
from ..checking.server import connected, require_rounding
from ..checkpoints.grids import read_target
from ..checkpoints.resolve import resolve
from ..errors import UsageError
from ..statistics.effect import read_effect
from ..text.tokens import Tokenizer


def check(
    model: str,
    *,
    strides: Sequence[int] = (),
    run: str | Path | None = None,
    condition: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    **settings: Any,
) -> checking.Verdict:
    """Hold the engine that runs a local model to every invariance: `phasescope check`.

    Args:
        model: a zoo name, a checkpoint folder, or a server's address.
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
    if "://" in model:
        return check_server(
            model, strides=strides, run=run, condition=condition, seed=seed, dtype=dtype, **settings
        )
    from ..checking.local import LocalEngine, require_dtype  # needs torch, and checking a server does not

    require_dtype(dtype)
    found = resolve(model)
    name, folder = found.name, found.folder
    backend = BACKENDS.load("transformers").load(
        folder, name=name, device=device, dtype=dtype, trust_remote_code=trust_remote_code
    )
    digest = backend.describe()["digest"]
    effect = None if run is None else read_effect(Path(run), condition=condition, digest=digest, seed=seed)
    engine = LocalEngine(backend.model, name=name, facts={"digest": digest})
    around = [*strides, *read_target(folder).strides, *ENGINE_STRIDES]
    return checking.check(engine, strides=around, seed=seed, effect=effect, **settings)


def check_server(
    url: str,
    *,
    strides: Sequence[int] = (),
    run: str | Path | None = None,
    condition: str | None = None,
    seed: int = 0,
    model: str | None = None,
    tokenizer: Path | None = None,
    dtype: str = "auto",
    selects: bool | None = None,
    speculates: bool | None = None,
    **settings: Any,
) -> checking.Verdict:
    """Hold the engine behind an OpenAI-compatible server to every invariance: `phasescope check http://…`.

    Args:
        url: the server's address.
        strides: of the model's grids, which a server does not tell; pages of 16 and 64 tokens are always tried.
        run: a run of `measure` with the same server.
        condition: which condition of it.
        seed: of every draw.
        model: which of the server's models.
        tokenizer: the folder of its tokenizer, to draw prompts from its whole vocabulary.
        dtype: coarsest number format of the engine; `auto` takes it for bfloat16.
        selects: whether the model chooses by scores.
        speculates: whether the engine decodes with drafts.
        **settings: as `phasescope.checking.check` has them.

    Raises:
        UsageError: if a setting does not fit.
        ServerError: if the server cannot be asked.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is no address of a server; give http://HOST:PORT")
    dtype = "bfloat16" if dtype == "auto" else dtype
    require_rounding(dtype)
    effect = None if run is None else read_effect(Path(run), condition=condition, seed=seed)
    loaded = None if tokenizer is None else Tokenizer.load(tokenizer)
    around = [*strides, *ENGINE_STRIDES]
    with connected(
        url, model=model, tokenizer=loaded, dtype=dtype, selects=selects, speculates=speculates
    ) as engine:
        return checking.check(engine, strides=around, seed=seed, effect=effect, **settings)
