"""Explain a run head by head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..explaining.settings import ExplainSettings
from ..reporting.explain_page import explain_page
from ..running.runner import Report

if TYPE_CHECKING:
    from ..explaining.result import ExplanationResult


def explain(
    run: str | Path,
    *,
    out: str | Path | None = None,
    report: Report = lambda done, total: None,
    **settings: Any,
) -> ExplanationResult:
    """Take heads away one at a time, read the gates, and write explain.json and explain.html.

    Args:
        run: a run folder that `measure` wrote.
        out: where to write; by default `explain/CONDITION` in the run.
        report: called with the number of answered trials, and of all.
        **settings: as `explaining.settings.ExplainSettings` has them.

    Raises:
        UsageError: if the run, the condition, the model or the settings cannot be explained.
    """
    given = ExplainSettings.checked(**settings)
    from ..explaining.explanation import Explanation  # needs torch

    prepared = Explanation(Path(run), given, None if out is None else Path(out))
    found = prepared.run(report)
    explain_page(prepared.path)
    return found
