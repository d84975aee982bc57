"""`phasescope measure`: ask models the same questions at every residue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .extras import need_models
from .progress import bar


def measure(
    models: Annotated[list[str], typer.Argument(help="Zoo names or checkpoint folders; name a control too.")],
    out: Annotated[Path, typer.Option(help="The run folder; the same command resumes what it finds there.")],
    protocol: Annotated[list[str] | None, typer.Option(help="A protocol's name; may be repeated.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Records in a context; by default as many as the cards name.", min=1)
    ] = None,
    contexts: Annotated[int, typer.Option(help="Contexts; 25 or more for intervals to hold.", min=1)] = 25,
    questions: Annotated[int | None, typer.Option(help="Records asked per context.", min=1)] = None,
    residues: Annotated[int, typer.Option(help="Layouts per context.", min=2)] = 24,
    seed: Annotated[int, typer.Option(help="Seed of every draw.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="Where torch runs the models.")] = "cpu",
    threads: Annotated[
        int, typer.Option(help="CPU threads; part of the run, as sums depend on it.", min=1)
    ] = 2,
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that a checkpoint brings along.")] = False,
) -> None:
    """Ask every model every question at every residue, and log the answers in a run folder."""
    experiments = need_models(threads)
    with bar() as progress:
        task = progress.add_task("trials", total=None, note="")
        experiments.measure(
            models,
            protocol or ["prefix"],
            out,
            seed=seed,
            report=lambda done, total: progress.update(task, completed=done, total=total),
            device=device,
            trust_remote_code=trust_remote_code,
            pairs=pairs,
            contexts=contexts,
            questions=questions,
            residues=residues,
        )
    print(f"wrote {out}; next: phasescope report {out}")
