"""`phasescope mitigate`: what votes and pads win on a measured model, on prompts of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import verbs
from ..mitigations import Combine
from .extras import prepare_models
from .progress import bar

EXAMPLES = {"mitigate": ("runs/first", "runs/first --condition w8s8-1kv --contexts 96")}


def mitigate(
    run: Annotated[Path, typer.Argument(help="A run folder that `report` has read; its profile is used.")],
    condition: Annotated[
        str | None, typer.Option(help="Whose profile; needed where several conditions are phase-sensitive.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the trial; RUN/mitigate by default.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The checkpoint; by default what the run names.")] = None,
    shift: Annotated[
        list[int] | None,
        typer.Option(
            help="Pads of one of the vote's askings; may be repeated. By default 0 and half a stride."
        ),
    ] = None,
    combine: Annotated[Combine, typer.Option(help="How the vote chooses.")] = "mean",
    below: Annotated[
        float, typer.Option(help="Margin in nats under which the adaptive vote asks again.", min=0)
    ] = 2.0,
    limit: Annotated[int | None, typer.Option(help="The most pads per prompt.", min=0)] = None,
    contexts: Annotated[
        int, typer.Option(help="Contexts, all new; 25 or more for intervals to hold.", min=4)
    ] = 48,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", "-s", help="Seed of the new prompts; by default one more than the run's.", min=0
        ),
    ] = None,
    anyway: Annotated[bool, typer.Option(help="Try it on a model without a phase effect too.")] = False,
    device: Annotated[str, typer.Option(help="Where torch runs the model.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 2,
) -> None:
    """Ask new prompts with and without votes and pads, and say what they win and cost."""
    prepare_models(threads)
    with bar() as progress:
        task = progress.add_task("trials", total=None, note="")
        result = verbs.mitigate(
            run,
            condition=condition,
            out=out,
            model=model,
            shifts=tuple(shift) if shift else None,
            combine=combine,
            below=below,
            limit=limit,
            contexts=contexts,
            seed=seed,
            anyway=anyway,
            device=device,
            report=lambda done, total: progress.update(task, completed=done, total=total),
        )
    print("\n".join(result.lines()))
    if result.outcomes:
        print(f"wrote {(out or run / 'mitigate') / 'mitigation.json'}")
