"""A server's check, as the command line names it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..text.tokens import Tokenizer
from .cases import ENGINE_STRIDES
from .effect import read_effect
from .server import IDS, ROUNDING, HttpTransport, ServerEngine
from .suite import Report, check
from .verdict import Verdict


def check_server(
    url: str,
    *,
    strides: Sequence[int],
    run: Path | None,
    condition: str | None,
    report: Report,
    model: str | None = None,
    tokenizer: Path | None = None,
    dtype: str = "auto",
    selects: bool | None = None,
    speculates: bool | None = None,
    **settings: Any,
) -> Verdict:
    """Check an engine behind an OpenAI-compatible server.

    Args:
        url: its address.
        strides: of the model's grids, which a server does not tell; pages of 16 and 64 are always asked.
        run: of `measure` with the same server.
        condition: which condition of the run.
        report: told how far the check is.
        model: which of its models.
        tokenizer: to draw prompts from its whole vocabulary.
        dtype: coarsest number format of the engine; by default bfloat16.
        selects: whether the model chooses by scores.
        speculates: whether the engine decodes with drafts.
        **settings: as `check` has them.

    Raises:
        UsageError: if the server cannot be asked, or a setting does not fit.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is no address of a server; give http://HOST:PORT")
    if dtype not in ("auto", *ROUNDING):
        raise UsageError(f"unknown dtype {dtype!r}; known: {', '.join(ROUNDING)}")
    effect = None if run is None else read_effect(run, condition=condition)
    ids = IDS
    if tokenizer is not None:
        loaded = Tokenizer.load(tokenizer)
        ids = tuple(token for token in range(loaded.size) if token not in loaded.special_ids)
    subject = ServerEngine(
        HttpTransport(url, model=model),
        dtype="bfloat16" if dtype == "auto" else dtype,
        ids=ids,
        selects=selects,
        speculates=speculates,
    )
    return check(subject, strides=[*strides, *ENGINE_STRIDES], effect=effect, report=report, **settings)
