"""Audit an existing benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..auditing import Audit, Locator, Settings, strides_of_model
from ..auditing import audit as audited
from ..auditing.reading import Report
from ..auditing.samples import PARTS
from ..auditing.settings import AuditSettings
from ..text.tokens import Tokenizer


def audit(source: str | Path, *, report: Report = lambda done, total: None, **settings: Any) -> Audit:
    """Count the phases that a benchmark visits, and say what it could hide; nothing is written unless `fix` is given.

    Args:
        source: its file, a log of answers, or `file.py:function` for a generator.
        report: called with the samples that are read, and of all.
        **settings: as `auditing.settings.AuditSettings` has them.

    Raises:
        UsageError, BrokenRecordError: for anything that was given and cannot be read.
    """
    given = AuditSettings.checked(**settings)
    locator = Locator(
        tokenizer=None if given.tokenizer is None else Tokenizer.load(given.tokenizer),
        **{name: getattr(given, name) for name in ("chat", "bos", "find", "occurrence", "offset")},
    )
    resolved = Settings(
        source=str(source),
        columns={part: getattr(given, part) for part in PARTS},
        locator=locator,
        strides=given.strides or None,
        model_strides=() if given.model is None else strides_of_model(given.model),
        **{name: getattr(given, name) for name in ("format", "bar", "accuracy", "seed", "draws", "fix")},
    )
    return audited(resolved, report)
