"""Audit an existing benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..auditing import Audit, Locator, Settings, strides_of_model
from ..auditing import audit as audited
from ..text.tokens import Tokenizer


def audit(
    source: str | Path,
    *,
    tokenizer: str | Path | None = None,
    format: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    strides: Sequence[int] | None = None,
    model: str | None = None,
    locate: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Audit:
    """Count the phases that a benchmark visits, and say what it could hide; nothing is written unless `fix` is given.

    Args:
        source: its file, a log of answers, or `file.py:function` for a generator.
        tokenizer: of the model: a folder or a tokenizer.json.
        format: of the source; recognised if not given.
        columns: names of columns by `prompt`, `needle`, `position`, `score`.
        strides: to look at; by default the usual ones.
        model: a checkpoint whose strides are looked at too.
        locate: how samples get their positions: `chat`, `bos`, `find`, `occurrence`, `offset` of `Locator`.
        **settings: as `auditing.Settings` has them: `bar`, `accuracy`, `seed`, `draws`, `fix`.

    Raises:
        UsageError, BrokenRecordError: for anything that was given and cannot be read.
    """
    named: dict[str, str | None] = dict.fromkeys(("prompt", "needle", "position", "score"))
    loaded = None if tokenizer is None else Tokenizer.load(Path(tokenizer))
    return audited(
        Settings(
            source=str(source),
            format=format,
            columns={**named, **(columns or {})},
            locator=Locator(tokenizer=loaded, **(locate or {})),
            strides=None if strides is None else tuple(strides),
            model_strides=() if model is None else strides_of_model(model),
            **settings,
        )
    )
