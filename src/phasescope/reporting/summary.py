"""What a terminal prints of a report: its verdict and a line per condition, controls first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from pydantic import ValidationError

from ..errors import BrokenRecordError
from ..files import read_json
from ..records import Finding
from ..statistics.verdict import COLUMNS, plain, rows, verdict
from .sweep_page import apart, sweep_text


def read_findings(path: Path) -> list[Finding]:
    """Read a findings.json.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: if it is not what `report` writes.
    """
    content = read_json(path)
    try:
        return [Finding.model_validate(record) for record in content["findings"]]
    except (ValidationError, KeyError, TypeError) as error:
        raise BrokenRecordError(
            f"{path} holds no findings ({type(error).__name__}); run `report` again"
        ) from None


def summary(folder: Path) -> str:
    """The verdict and a table of the conditions as plain text, from the folder's findings.json; then its sweeps."""
    findings = read_findings(folder / "findings.json")
    rest, sweeps = apart(findings)
    parts = [sweep_text(own) for own in sweeps.values()]
    if rest or not sweeps:
        lines = [COLUMNS, *(astuple(row) for row in rows(rest))]
        parts.insert(0, f"{_table(lines)}\n\n{verdict(rest)}")
    parts += ["\n".join(lost)] if (lost := list(_lost(findings))) else []
    return "\n\n".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def _lost(findings: Sequence[Finding]) -> list[str]:
    """A line per condition with dropped prompts."""
    return [
        f"{plain(finding.condition)} lost {finding.detail['dropped_trials']:,} prompts: {finding.detail['dropped_for']}"
        for finding in findings
        if finding.outcome == "accuracy" and "dropped_trials" in finding.detail
    ]


def _table(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
