"""A progress bar with time left, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .terminal import Terminal


def bar() -> Progress:
    """A bar that shows what runs, how far, how long it took and how long is left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Terminal(stderr=True),
        transient=True,  # no bar is left above what a command has to say
    )


@contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for one task; what it gives is called with how much is done, and of how much in all."""
    with bar() as progress:
        task = progress.add_task(what, total=None, note="")
        yield lambda done, total: progress.update(task, completed=done, total=total)
