"""`phasescope check`: is it the engine or the model?"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.table import Table

from .. import verbs
from ..checking import Verdict
from ..checking.settings import CheckSettings
from ..checking.verdict import WORDS
from ..files import dump_json
from ..settings import LOCAL
from .extras import prepare_models
from .options import options_from
from .progress import bar
from .server import quiet_retries
from .terminal import Terminal, say_json

EXAMPLES = {
    "check": (
        "w8s8-1kv",
        "FOLDER --run runs/first --json",
        "http://localhost:8000 --tokenizer FOLDER --stride 8",
    )
}


@options_from(settings=CheckSettings)
def check(
    settings: CheckSettings,
    model: Annotated[str, typer.Argument(help="A zoo name, a checkpoint folder, or a server's address.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1, rich_help_panel=LOCAL)] = 2,
) -> None:
    """Feed the same tokens in every way that the engine offers; exit with 1 if an answer depends on it."""
    if "://" in model:
        quiet_retries()
    else:
        prepare_models(threads)
    with bar() as progress:
        task = progress.add_task("check", total=None, note="")
        verdict = verbs.check(
            model,
            report=lambda what, done, total: progress.update(task, completed=done, total=total, note=what),
            **dict(settings),
        )
    say_json(dump_json(verdict.model_dump(mode="json"))) if as_json else _show(verdict)
    if verdict.faults:
        sys.exit(1)


def _show(verdict: Verdict) -> None:
    """The verdict first, then a row per invariance, then by what it was judged."""
    console = Terminal(soft_wrap=True)
    console.print(verdict.sentence)
    table = Table()
    for column in ("feature", "verdict", "what was found"):
        table.add_column(column, overflow="fold")
    for row in verdict.rows:
        table.add_row(row.feature, WORDS[row.state], row.words())
    Terminal().print(table)
    rounding = "" if verdict.rounding is None else f", rounding in every layer {verdict.rounding:.1e}"
    rounding += f", other shapes {verdict.spread:.1e}" if verdict.spread else ""
    console.print(
        f"strides {', '.join(map(str, verdict.strides)) or 'none'}; tolerance {verdict.tolerance:.1e} of a "
        f"log-probability (equal calls {verdict.floor:.1e}{rounding}); seed {verdict.seed}"
    )
