"""From run folders to a report: the page, its figures, the files beside it, and what a terminal prints of it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..files import write_atomic
from ..records import Finding
from ..statistics.analyses import Analysis, Progress, analyse_conditions, read_findings
from ..statistics.conditions import read_conditions
from ..wording import columns
from .figure import Figure
from .method import describe
from .run_page import figures_of, render
from .sentences import COLUMNS, rows, verdict
from .sweep_page import apart, sweep_text
from .words import plain


@dataclass(frozen=True, repr=False)
class Report:
    """A report of one or several runs.

    Attributes:
        page: the path of report.html; findings.json, profile.json and observations.parquet lie beside it.
        analysis: what was found.
    """

    page: Path
    analysis: Analysis

    @property
    def text(self) -> str:
        """What a terminal prints."""
        return summary_of(self.analysis.findings)

    @property
    def figures(self) -> dict[str, Figure]:
        """The page's figures by the condition's name and what they show."""
        return figures_of(self.analysis)

    def __repr__(self) -> str:
        return f"Report({str(self.page)!r}, {self.analysis!r})"

    def _repr_html_(self) -> str:
        drawn = "".join(figure._repr_html_() for figure in self.figures.values())
        return f"<pre>{html.escape(self.text)}</pre>{drawn}"


def build_report(
    folders: Sequence[Path],
    out: Path | None = None,
    *,
    seed: int = 0,
    draws: int = 2000,
    reading: Progress = lambda done, total: None,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Analyse one or several runs and write findings.json, profile.json, observations.parquet and report.html.

    The same runs, seed and draws give the same bytes.

    Args:
        folders: run folders, finished or not.
        out: where to write; by default the run's own folder, which only works for a single run.
        seed: of the permutations and resamples.
        draws: permutations per test.
        reading: called with the number of trials of a folder that are read, and of all.
        progress: called with the number of conditions that are analysed, and of all.

    Raises:
        UsageError: if a folder holds no run, several runs are given without `out`, or all was dropped.
        BrokenRecordError: if a file of a run is damaged.
    """
    if out is None and len(folders) > 1:
        raise UsageError(f"{len(folders)} runs and no folder for their common report; give one with --out")
    analysis = analyse_conditions(
        *read_conditions(folders, reading), seed=seed, draws=draws, progress=progress
    )
    folder = folders[0] if out is None else out
    page = render(analysis, describe(analysis, folder))
    analysis.write(folder)
    write_atomic(folder / "report.html", page)
    return Report(folder / "report.html", analysis)


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
