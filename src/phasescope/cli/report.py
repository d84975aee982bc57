"""`phasescope report`: what one or several runs say, as a page and as data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..reporting import build_report
from .progress import bar
from .terminal import say

EXAMPLES = {"report": ("runs/first", "runs/first runs/second -o runs/both")}


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `measure` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; needed for several runs.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of permutations and resamples.", min=0)] = 0,
    draws: Annotated[int, typer.Option(help="Permutations per test.", min=20)] = 2000,
) -> None:
    """Analyse runs and write report.html, findings.json and observations.parquet; needs no torch."""
    with bar() as progress:
        reading = progress.add_task("reading", total=None, note="trials")
        analysing = progress.add_task("analysing", total=None, note="conditions")
        found = build_report(
            runs,
            out,
            seed=seed,
            draws=draws,
            reading=lambda done, total: progress.update(reading, completed=done, total=total),
            progress=lambda done, total: progress.update(analysing, completed=done, total=total),
        )
    say(found.text)
    say(f"report: {found.page}")
