"""The options of where backends run and how many of them."""

from __future__ import annotations

from typing import Annotated

import typer

from ..catalog import ENGINES
from ..errors import UsageError
from ..running import Engine
from .extras import need

PANEL = "Scale-out"
EngineOption = Annotated[
    str | None,
    typer.Option(
        help="local, processes or ray; by default processes for several workers.", rich_help_panel=PANEL
    ),
]
WorkersOption = Annotated[
    int, typer.Option(help="Backends that answer side by side, one GPU each.", min=1, rich_help_panel=PANEL)
]


def engine_of(name: str | None, workers: int) -> Engine:
    """The engine of that name.

    Raises:
        UnknownNameError: if there is none.
        UsageError: for several workers in one process.
        MissingExtraError: naming the extra to install.
    """
    name = name or ("local" if workers == 1 else "processes")
    made = ENGINES.load(name)
    if name == "local":
        if workers > 1:
            raise UsageError(f"the engine local has one worker, not {workers}; use processes or ray")
        engine: Engine = made()
        return engine
    if name == "ray":
        need("ray")
    engine = made(workers=workers)
    return engine
