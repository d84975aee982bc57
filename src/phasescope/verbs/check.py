"""Hold an engine to every invariance: the one that runs a local model, or the one behind a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import checking
from ..catalog import BACKENDS
from ..checking.cases import ENGINE_STRIDES
from ..checking.server import connected, require_rounding
from ..checking.settings import CheckSettings, SuiteSettings
from ..checking.suite import Report
from ..checkpoints.grids import read_target
from ..checkpoints.resolve import resolve
from ..errors import UsageError
from ..statistics.effect import Effect, read_effect
from ..text.tokens import Tokenizer

Subject = tuple[checking.EngineUnderTest, tuple[int, ...], Effect | None]
"""An engine, the strides that are known of it, and what was measured with it."""


def check(
    model: str, *, report: Report = lambda what, done, total: None, **settings: Any
) -> checking.Verdict:
    """Hold the engine that runs a local model, or the one behind a server, to every invariance that it offers.

    Args:
        model: a zoo name, a checkpoint folder, or a server's address.
        report: told how far the check is.
        **settings: as `checking.settings.CheckSettings` has them.

    Raises:
        UsageError: for a model that cannot be loaded, or settings that do not fit.
        ServerError: if the server cannot be asked.
    """
    given = CheckSettings.checked(**settings)
    server = "://" in model
    if given.condition is not None and given.run is None:
        raise UsageError("--condition names a condition of a run; give the run with --run")
    for option, value in (("--served", given.served), ("--tokenizer", given.tokenizer)):
        if value is not None and not server:
            raise UsageError(f"{option} is for a server, and {model!r} is none; give its http address")
    asked = {name: getattr(given, name) for name in SuiteSettings.model_fields}
    with (_server if server else _local)(model, given) as (engine, strides, effect):
        around = [*given.strides, *strides, *ENGINE_STRIDES]
        return checking.check(engine, strides=around, effect=effect, report=report, **asked)


@contextmanager
def _local(model: str, given: CheckSettings) -> Iterator[Subject]:
    from ..checking.local import LocalEngine, require_dtype  # needs torch, and checking a server does not

    require_dtype(given.dtype)
    found = resolve(model)
    backend = BACKENDS.load("transformers").load(
        found.folder,
        name=found.name,
        device=given.device,
        dtype=given.dtype,
        trust_remote_code=given.trust_remote_code,
    )
    digest = backend.describe()["digest"]
    engine = LocalEngine(backend.model, name=found.name, facts={"digest": digest})
    yield engine, read_target(found.folder).strides, _effect(given, digest)


@contextmanager
def _server(url: str, given: CheckSettings) -> Iterator[Subject]:
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is no address of a server; give http://HOST:PORT")
    dtype = "bfloat16" if given.dtype == "auto" else given.dtype
    require_rounding(dtype)
    effect = _effect(given, None)
    with connected(
        url,
        model=given.served,
        tokenizer=None if given.tokenizer is None else Tokenizer.load(given.tokenizer),
        dtype=dtype,
        selects=False if given.no_selection else None,
        speculates=False if given.no_drafts else None,
    ) as engine:
        yield engine, (), effect


def _effect(given: CheckSettings, digest: str | None) -> Effect | None:
    if given.run is None:
        return None
    return read_effect(given.run, condition=given.condition, digest=digest, seed=given.seed)
