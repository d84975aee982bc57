"""What a terminal prints of a report: its verdict and a line per condition, controls first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..records import Finding
from ..statistics.analyses import read_findings
from ..wording import columns
from .sentences import COLUMNS, rows, verdict
from .sweep_page import apart, sweep_text
from .words import plain


def summary(folder: Path) -> str:
    """What a terminal prints of a folder's findings.json.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: if it is not what `report` writes.
    """
    return summary_of(read_findings(folder / "findings.json"))


def summary_of(findings: Sequence[Finding]) -> str:
    """The verdict and a table of the conditions as plain text; then the sweeps, and what was dropped."""
    rest, sweeps = apart(findings)
    parts = (
        ["\n".join([*columns([COLUMNS, *rows(rest)], left=True), "", verdict(rest)])]
        if rest or not sweeps
        else []
    )
    parts += [sweep_text(own) for own in sweeps.values()]
    lost = [
        f"{plain(finding.condition)} lost {finding.detail['dropped_trials']:,} prompts: {finding.detail['dropped_for']}"
        for finding in findings
        if finding.outcome == "accuracy" and "dropped_trials" in finding.detail
    ]
    parts += ["\n".join(lost)] if lost else []
    return "\n\n".join(parts).replace("\N{NO-BREAK SPACE}", " ")
