"""`phasescope compare`: what changed from a baseline, and a gate for an engine's or a model's own tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..verbs.compare import compare as compared
from .progress import shown
from .terminal import say

EXAMPLES = {"compare": ("runs/before runs/after", "runs/before runs/after --no-worse --max-phase-sd 5")}
NOT_PASSED = 1


def compare(
    baseline: Annotated[Path, typer.Argument(help="The run that the others are held against.")],
    runs: Annotated[list[Path], typer.Argument(help="Run folders that answered the same trials.")],
    no_worse: Annotated[
        bool,
        typer.Option("--no-worse", help="Exit with 1 if recall falls or phases differ more than before."),
    ] = False,
    max_phase_sd: Annotated[
        float | None,
        typer.Option(help="Exit with 1 if a phase SD is surely above so many points.", min=0, max=50),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of the permutations.", min=0)] = 0,
    draws: Annotated[int, typer.Option(help="Permutations per test.", min=20)] = 2000,
) -> None:
    """Compare runs trial by trial: models, engines, versions or days that were asked the same; needs no torch."""
    with shown("reading") as reading:
        found = compared(baseline, runs, seed=seed, draws=draws, reading=reading)
    say(found.text)
    failed = [f"{one.after} is worse than {one.before}" for one in found.worse] if no_worse else []
    if max_phase_sd is not None:
        failed += [
            f"{one.after} has a phase SD above {max_phase_sd:g} points" for one in found.above(max_phase_sd)
        ]
    for line in failed:
        say(f"not passed: {line}")
    if failed:
        raise typer.Exit(NOT_PASSED)
