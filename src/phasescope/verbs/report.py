"""Analyse runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..reporting import build_report
from ..reporting.build import Report


def report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    seed: int = 0,
    draws: int = 2000,
) -> Report:
    """Analyse one or several runs, and write report.html, findings.json, profile.json and observations.parquet.

    Args:
        runs: run folders: one, or a list.
        out: where to write; by default the run's own folder, which works for a single run only.
        seed: of permutations and resamples.
        draws: permutations per test.

    Raises:
        UsageError: if a folder holds no run, or several runs are given without `out`.
        BrokenRecordError: if a file of a run is damaged.
    """
    several = [runs] if isinstance(runs, str | Path) else runs
    return build_report(
        [Path(run) for run in several], None if out is None else Path(out), seed=seed, draws=draws
    )
