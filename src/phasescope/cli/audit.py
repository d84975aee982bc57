"""`phasescope audit`: which phases a benchmark visits, what it could hide, and a balanced copy of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..auditing import Locator, Settings, strides_of_model
from ..auditing import audit as audited
from ..reporting.audit_page import write_audit
from ..text.locate import Occurrence
from ..text.tokens import Tokenizer
from .progress import shown

EXAMPLES = {
    "audit": (
        "samples.jsonl --tokenizer FOLDER --stride 4 --fix balanced.jsonl",
        "log.eval --tokenizer FOLDER --model FOLDER",
    )
}


def audit(
    source: Annotated[
        str, typer.Argument(help="A benchmark's file, a log of answers, or file.py:function for a generator.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for audit.html and audit.json.")] = Path(
        "runs/audit"
    ),
    tokenizer: Annotated[
        Path | None, typer.Option(help="The model's tokenizer: a folder or a tokenizer.json.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="csv, inspect, jsonl, lm-eval, needlehaystack, parquet, python or ruler; recognised if not given."
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="Column of the prompt; dots lead inside.")] = None,
    needle: Annotated[str | None, typer.Option(help="Column of the text that is asked for.")] = None,
    position: Annotated[str | None, typer.Option(help="Column of the needle's token position.")] = None,
    score: Annotated[str | None, typer.Option(help="Column of the score, 0 to 1.")] = None,
    find: Annotated[
        str | None,
        typer.Option(help="Regular expression to locate instead of the needle; {needle} stands for it."),
    ] = None,
    occurrence: Annotated[
        Occurrence, typer.Option(help="Which of several occurrences counts; 'only' leaves such samples out.")
    ] = "only",
    chat: Annotated[bool, typer.Option(help="Put prompts into the tokenizer's chat template.")] = False,
    bos: Annotated[bool, typer.Option(help="Count the beginning-of-text token.")] = False,
    offset: Annotated[int, typer.Option(help="Tokens to add to positions from a column.", min=0)] = 0,
    stride: Annotated[
        list[int] | None,
        typer.Option(help="A stride to look at; may be repeated. Usually 2-16, 32, 64, 128."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A checkpoint whose strides are looked at too.")] = None,
    bar_: Annotated[
        float, typer.Option("--bar", help="Mean accuracy from which the benchmark counts as passed.")
    ] = 0.9,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Accuracy at healthy phases; by default the scores' mean, or the bar."),
    ] = None,
    fix: Annotated[
        Path | None, typer.Option(help="Write the benchmark with pads that even out the named strides here.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "-s", help="Seed of every draw.", min=0)] = 0,
    draws: Annotated[int, typer.Option(help="Permutations per test.", min=20)] = 2000,
) -> None:
    """Count the phases that a benchmark visits; needs neither a model nor torch."""
    settings = Settings(
        source=source,
        format=format,
        columns={"prompt": prompt, "needle": needle, "position": position, "score": score},
        locator=Locator(
            tokenizer=None if tokenizer is None else Tokenizer.load(tokenizer),
            chat=chat,
            bos=bos,
            find=find,
            occurrence=occurrence,
            offset=offset,
        ),
        strides=None if stride is None else tuple(stride),
        model_strides=() if model is None else strides_of_model(model),
        bar=bar_,
        accuracy=accuracy,
        seed=seed,
        draws=draws,
        fix=fix,
    )
    with shown("samples") as report:
        found = audited(settings, report)
    print(write_audit(found, out))
