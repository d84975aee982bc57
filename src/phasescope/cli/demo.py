"""`phasescope demo`: the shipped models, measured and reported in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import verbs
from ..reporting import build_report
from .extras import prepare_models
from .progress import shown
from .terminal import say


def demo(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The run folder; the same command resumes what it finds there."),
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of every draw.", min=0)] = 0,
    threads: Annotated[
        int, typer.Option(help="CPU threads; part of the run, as sums depend on it.", min=1)
    ] = 2,
) -> None:
    """Measure the shipped models, write a report, and name it."""
    prepare_models(threads)
    with shown("trials") as report:
        verbs.demo(out, seed=seed, report=report)
    with shown("conditions analysed") as report:
        found = build_report([out], progress=report)
    say(found.text)
    say(f"report: {found.page.resolve()}")
