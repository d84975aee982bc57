"""`phasescope measure`: ask models the same questions at every residue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .extras import need_models
from .progress import bar


def measure(
    models: Annotated[
        list[str],
        typer.Argument(help="Names of `phasescope list`, or checkpoint folders; a control too."),
    ],
    out: Annotated[Path, typer.Option(help="The run folder; the same command resumes what it finds there.")],
    protocol: Annotated[list[str] | None, typer.Option(help="A protocol's name; may be repeated.")] = None,
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
    tokenizer: Annotated[
        Path | None, typer.Option(help="Needle: a tokenizer.json or its folder; by default the model's own.")
    ] = None,
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
            tokenizer=tokenizer,
            prompt_tokens=prompt_tokens,
            groups=groups,
            value_words=value_words,
            chat=chat or None,
        )
    print(f"wrote {out}; next: phasescope report {out}")
