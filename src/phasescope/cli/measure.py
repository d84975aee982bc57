"""`phasescope measure`: ask models the same questions at every residue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..verbs.measure import conditions_of
from .asking import Asking, with_asking
from .terminal import say

EXAMPLES = {
    "measure": (
        "full-1kv w8s8-1kv --protocol in_sequence -o runs/first",
        "FOLDER --protocol needle --device cuda --plan",
        "MODEL --backend openai --base-url http://localhost:8000/v1 --tokenizer FOLDER -o runs/served",
    )
}


@with_asking
def measure(
    asking: Asking,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of `phasescope list`, or checkpoint folders; a control too. With a server, its models."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run folder; the same command resumes what it finds there."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", "-m", hidden=True, help="One more model; may be repeated.")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", "-p", help="A protocol's name; may be repeated.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Records in a context; by default as many as the cards name.", min=1)
    ] = None,
    contexts: Annotated[int, typer.Option(help="Contexts; 25 or more for intervals to hold.", min=1)] = 25,
    questions: Annotated[int | None, typer.Option(help="Records asked per context.", min=1)] = None,
    residues: Annotated[int | None, typer.Option(help="Layouts per context; 24 by default.", min=2)] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(help="Needle: tokens per prompt; by default 131072, or what the model reads."),
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="Needle: residues of the source's position; 8 by default.", min=2)
    ] = None,
    value_words: Annotated[
        int | None, typer.Option(help="Needle: one-token words per value; by default as few as suffice.")
    ] = None,
    chat: Annotated[bool, typer.Option(help="Needle: ask in the model's chat template.")] = False,
    control: Annotated[
        list[str] | None,
        typer.Option("--control", "-c", help="A model that you know to have no grid; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of every draw.", min=0)] = 0,
) -> None:
    """Ask every model every question at every residue, and log the answers in a run folder."""
    answerers = asking.answerers([*(models or []), *(model or [])], control or [])
    conditions = conditions_of(
        answerers,
        protocol or ["prefix"],
        pairs=pairs,
        contexts=contexts,
        questions=questions,
        residues=residues,
        prompt_tokens=prompt_tokens,
        groups=groups,
        value_words=value_words,
        chat=chat or None,
    )
    if asking.go(conditions, out, seed):
        say(f"wrote {out}; next: phasescope report {out}")
