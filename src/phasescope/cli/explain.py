"""`phasescope explain`: a phase curve head by head."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..reporting.explain_page import explain_page, explain_summary
from .extras import prepare_models
from .progress import bar

EXAMPLES = {"explain": ("runs/first", "runs/first --condition w8s8-1kv --branch entries")}


def explain(
    run: Annotated[Path, typer.Argument(help="Run folder that `measure` wrote.")],
    condition: Annotated[
        str | None, typer.Option(help="A condition of the run; by default the only one with a grid.")
    ] = None,
    blocks: Annotated[
        int | None,
        typer.Option(help="Questions, each at all its layouts; by default 200 or what there is.", min=1),
    ] = None,
    mode: Annotated[
        Literal["mean", "zero", "resample"], typer.Option(help="What stands in the place of a head's output.")
    ] = "mean",
    branch: Annotated[
        Literal["all", "entries", "local"],
        typer.Option(
            help="What is taken from a head: everything, or what it reads from entries, or from raw tokens."
        ),
    ] = "all",
    where: Annotated[
        Literal["last", "everywhere"],
        typer.Option(
            help="Take it away at the last position alone, or at every position, at a read per head."
        ),
    ] = "last",
    together: Annotated[
        list[str] | None, typer.Option(help="Heads taken away at once, such as L0.H0+L1.H0; may be repeated.")
    ] = None,
    rolls: Annotated[bool, typer.Option(help="Roll the gates' bias over its slots as well.")] = True,
    fold: Annotated[
        int | None, typer.Option(help="Modulus of the phases; by default the model's stride.", min=2)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Zoo name or checkpoint folder, where the run does not say.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; by default explain/ARM in the run.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", "-s", help="Seed of reference prompts and permutations.", min=0)
    ] = 0,
    draws: Annotated[int, typer.Option(help="Permutations per test.", min=20)] = 2000,
    device: Annotated[str, typer.Option(help="Where torch runs the model.")] = "cpu",
    threads: Annotated[
        int, typer.Option(help="CPU threads; part of the explanation, as sums depend on it.", min=1)
    ] = 1,
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that a checkpoint brings along.")] = False,
) -> None:
    """Take heads away one at a time, read the gates, and say which phases some head keeps and which none."""
    prepare_models(threads)
    from ..explaining import explanation  # needs torch

    settings = explanation.Settings(
        condition=condition,
        model=model,
        blocks=blocks,
        mode=mode,
        branch=branch,
        where=where,
        together=tuple(together or ()),
        rolls=rolls,
        fold=fold,
        seed=seed,
        draws=draws,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    prepared = explanation.Explanation(run, settings, out)
    print(f"{prepared.condition}: {prepared.cost().words()}")
    with bar() as progress:
        task = progress.add_task("trials", total=None, note="")
        prepared.run(lambda done, total: progress.update(task, completed=done, total=total))
    page = explain_page(prepared.path)
    print(explain_summary(prepared.path))
    print(f"explanation: {page}")
