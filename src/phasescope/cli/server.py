"""The options that every command has which asks a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import stamina.instrumentation
import typer

from ..backends.openai.client import Limits
from ..grid import WindowGrid

KeyVariable = Annotated[
    str | None,
    typer.Option(help="Server: environment variable with its key; OPENAI_API_KEY if set.", metavar="NAME"),
]
Concurrency = Annotated[int, typer.Option(help="Server: requests under way at a time.", min=1, max=1024)]
PerMinute = Annotated[float | None, typer.Option(help="Server: requests per minute, at most.")]
Timeout = Annotated[float, typer.Option(help="Server: seconds for one whole answer.")]
Tries = Annotated[int, typer.Option(help="Server: how often a request is sent before the run stops.", min=1)]
Deadline = Annotated[
    float | None, typer.Option(help="Server: seconds after which the run stops, to be resumed.")
]


def limits(
    concurrency: int, requests_per_minute: float | None, timeout: float, tries: int, deadline: float | None
) -> Limits:
    """The options as limits."""
    return Limits.checked(
        concurrency=concurrency,
        requests_per_minute=requests_per_minute,
        timeout=timeout,
        tries=tries,
        deadline=deadline,
    )


def window_grids(written: Sequence[str] | None) -> list[WindowGrid] | None:
    """Grids as they are written on a command line; 'none' is a model without one."""
    if not written:
        return None
    return [WindowGrid.parse(text) for text in written if text != "none"]


def quiet_retries() -> None:
    """No line per repeated request between those of the progress bar."""
    stamina.instrumentation.set_on_retry_hooks([])
