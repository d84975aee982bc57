"""`phasescope explain`: a phase curve head by head."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..explaining.settings import ExplainSettings
from ..reporting.explain_page import explain_page, explain_summary
from .extras import prepare_models
from .options import options_from
from .progress import shown
from .terminal import say

EXAMPLES = {"explain": ("runs/first", "runs/first --condition w8s8-1kv --branch entries")}


@options_from(settings=ExplainSettings)
def explain(
    settings: ExplainSettings,
    run: Annotated[Path, typer.Argument(help="Run folder that `measure` wrote.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write; by default explain/CONDITION in the run."),
    ] = None,
    threads: Annotated[
        int, typer.Option(help="CPU threads; part of the explanation, as sums depend on it.", min=1)
    ] = 1,
) -> None:
    """Take heads away one at a time, read the gates, and say which phases some head keeps and which none."""
    prepare_models(threads)
    from ..explaining.explanation import Explanation  # needs torch

    prepared = Explanation(run, settings, out)
    say(f"{prepared.condition}: {prepared.cost().words()}")
    with shown("trials") as report:
        prepared.run(report)
    page = explain_page(prepared.path)
    say(explain_summary(prepared.path))
    say(f"explanation: {page}")
