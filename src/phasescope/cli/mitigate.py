"""`phasescope mitigate`: what votes and pads win on a measured model, on prompts of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import verbs
from ..mitigations.trial import MitigateSettings
from .extras import prepare_models
from .options import options_from
from .progress import shown
from .terminal import say

EXAMPLES = {"mitigate": ("runs/first", "runs/first --condition w8s8-1kv --contexts 96")}


@options_from(settings=MitigateSettings)
def mitigate(
    settings: MitigateSettings,
    run: Annotated[Path, typer.Argument(help="A run folder that `report` has read; its profile is used.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the trial; RUN/mitigate by default.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 2,
) -> None:
    """Ask new prompts with and without votes and pads, and say what they win and cost."""
    prepare_models(threads)
    with shown("trials") as report:
        result = verbs.mitigate(run, out=out, report=report, **dict(settings))
    say("\n".join(result.lines()))
    if result.outcomes:
        say(f"wrote {(out or run / 'mitigate') / 'mitigation.json'}")
