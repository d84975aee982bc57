"""`phasescope check`: is it the engine or the model?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..checking import INVARIANCES, Verdict
from ..checking.verdict import WORDS
from ..errors import UsageError
from ..files import dump_json
from ..verbs.check import check as check_local
from ..verbs.check import check_server
from .extras import prepare_models
from .progress import bar
from .server import quiet_retries

EXAMPLES = {
    "check": (
        "w8s8-1kv",
        "FOLDER --run runs/first --json",
        "http://localhost:8000 --tokenizer FOLDER --stride 8",
    )
}


def check(
    model: Annotated[str, typer.Argument(help="A zoo name, a checkpoint folder, or a server's address.")],
    stride: Annotated[
        list[int] | None, typer.Option(help="A grid's stride, beside those of the model's config; repeat it.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="A run of `measure` with this engine: is there an effect at all?")
    ] = None,
    condition: Annotated[str | None, typer.Option(help="Which condition of that run.")] = None,
    feature: Annotated[
        list[str] | None, typer.Option(help=f"Check only this; repeat it: {', '.join(INVARIANCES)}.")
    ] = None,
    longest: Annotated[int | None, typer.Option(help="Tokens of the longest prompt.", min=16)] = None,
    cases: Annotated[int, typer.Option(help="Cases of each invariance.", min=4)] = 24,
    sweep: Annotated[int, typer.Option(help="Consecutive lengths read in one piece.", min=0)] = 256,
    new: Annotated[int, typer.Option(help="Tokens of the continuation that is compared.", min=1)] = 3,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of every draw.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    device: Annotated[str, typer.Option(help="Where torch runs a local model.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="Number format: of a local model, or the coarsest of a server's engine.")
    ] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads of a local model.", min=1)] = 2,
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that a checkpoint brings along.")] = False,
    served: Annotated[str | None, typer.Option(help="Which of a server's models.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Of a server's model, to draw prompts from.")] = None,
    no_selection: Annotated[
        bool, typer.Option("--no-selection", help="A server's model chooses nothing by scores (a dense one).")
    ] = False,
    no_drafts: Annotated[
        bool, typer.Option("--no-drafts", help="The server decodes without speculation.")
    ] = False,
) -> None:
    """Feed the same tokens in every way that the engine offers; exit with 1 if an answer depends on it."""
    server = "://" in model
    if condition is not None and run is None:
        raise UsageError("--condition names a condition of a run; give the run with --run")
    for option, given in (("--served", served), ("--tokenizer", tokenizer)):
        if given is not None and not server:
            raise UsageError(f"{option} is for a server, and {model!r} is none; give its http address")
    settings: dict[str, Any] = {
        "strides": stride or [],
        "run": run,
        "condition": condition,
        "features": feature,
        "longest": longest,
        "sizes": cases,
        "sweep": sweep,
        "new": new,
        "seed": seed,
    }
    with bar() as progress:
        task = progress.add_task("check", total=None, note="")

        def report(what: str, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, note=what)

        if server:
            quiet_retries()
            verdict = check_server(
                model,
                report=report,
                model=served,
                tokenizer=tokenizer,
                dtype=dtype,
                selects=False if no_selection else None,
                speculates=False if no_drafts else None,
                **settings,
            )
        else:
            prepare_models(threads)
            verdict = check_local(
                model,
                report=report,
                device=device,
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                **settings,
            )
    print(dump_json(verdict.model_dump(mode="json")), end="") if as_json else _show(verdict)
    if verdict.faults:
        sys.exit(1)


def _show(verdict: Verdict) -> None:
    """The verdict first, then a row per invariance, then by what it was judged."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(verdict.sentence)
    table = Table()
    for column in ("feature", "verdict", "what was found"):
        table.add_column(column, overflow="fold")
    for row in verdict.rows:
        table.add_row(row.feature, WORDS[row.state], row.words())
    Console(highlight=False, markup=False).print(table)
    rounding = "" if verdict.rounding is None else f", rounding in every layer {verdict.rounding:.1e}"
    console.print(
        f"strides {', '.join(map(str, verdict.strides)) or 'none'}; tolerance {verdict.tolerance:.1e} of a "
        f"log-probability (equal calls {verdict.floor:.1e}{rounding}); seed {verdict.seed}"
    )
