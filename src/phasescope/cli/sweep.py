"""`phasescope sweep`: does a prompt's answer flip when a few meaningless tokens are put in?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..protocols.padding_sweep import parse_lengths
from ..reporting import build_report
from ..text.prompts import read_prompts
from ..text.scorers import Scorer
from ..verbs.sweep import sweep_conditions
from .asking import Asking, Runs, with_asking
from .progress import shown
from .terminal import say, warn

FAMILIES = ["line", "spaces", "comment", "blank", "sentence"]


EXAMPLES = {
    "sweep": (
        "prompt.txt --expected 8 --rival 32 -m FOLDER -c CONTROL --lengths 24:40 -o runs/sweep",
        "prompts.jsonl -m FOLDER --scorer contains -o runs/sweep",
    )
}


@with_asking
def sweep(
    asking: Asking,
    prompts: Annotated[
        list[Path], typer.Argument(help="Text files, or .jsonl with one {prompt, expected, rival} a line.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run folder; the same command resumes what it finds there."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", help="A zoo name or checkpoint folder; repeatable.")
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option("--control", "-c", help="A model that you know to have no grid; repeatable."),
    ] = None,
    expected: Annotated[str | None, typer.Option(help="The continuation that is right.")] = None,
    rival: Annotated[list[str] | None, typer.Option(help="What it competes with; repeatable.")] = None,
    lengths: Annotated[
        str, typer.Option(help="Numbers of pad tokens: 24:40 is 24 to 39; or a list: 0,4,8.")
    ] = "0:24",
    family: Annotated[
        list[str] | None,
        typer.Option(help=f"Padding: {', '.join(FAMILIES)}, text:YOUR TEXT or ids:1,2,3; repeatable."),
    ] = None,
    place: Annotated[
        str, typer.Option(help="front, mark (at --mark), or around (--mark and --second-mark, equal length).")
    ] = "front",
    mark: Annotated[str, typer.Option(help="What stands in the prompt where pads go.")] = "<pad>",
    second_mark: Annotated[str, typer.Option(help="The same for the second pad of `around`.")] = "</pad>",
    source_mark: Annotated[
        str | None, typer.Option(help="What stands in front of what is asked about.")
    ] = None,
    chat: Annotated[bool, typer.Option(help="Put the prompt into the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="A system message, with --chat.")] = None,
    scorer: Annotated[
        str | None,
        typer.Option(
            help="Score a generated text: exact, begins, contains, regex:PATTERN, or your own code, which is run: "
            "module:function or file.py:function."
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(help="Tokens to generate for a scorer.", min=1)] = 64,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of the permutations.", min=0)] = 0,
    draws: Annotated[int, typer.Option(help="Permutations per test.", min=20)] = 2000,
) -> None:
    """Ask your own prompts with 0, 1, 2, … pad tokens put in: flips, period, and which padding is safe."""
    if asking.backend is Runs.transformers and not model and not control:
        raise UsageError("no model to sweep; name one with --model, and best a control with --control")
    read = read_prompts(prompts, expected=expected, rivals=rival or ())
    settings = {
        "lengths": parse_lengths(lengths),
        "families": tuple(family or FAMILIES),
        "placement": place,
        "mark": mark,
        "second_mark": second_mark,
        "source_mark": source_mark,
        "chat": chat,
        "system": system,
        "scorer": None if scorer is None else Scorer.load(scorer),
        "new_tokens": tokens,
    }
    conditions = sweep_conditions(
        asking.answerers(model or [], control or []),
        read,
        announce=warn,
        **settings,
    )
    if not asking.go(conditions, out, 0) or out is None:  # nothing is drawn, so any seed will do
        return
    with shown("conditions") as progress:
        found = build_report([out], seed=seed, draws=draws, progress=progress)
    say(found.text)
    say(f"report: {found.page}")
