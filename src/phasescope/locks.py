"""One process at a time in a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import UsageError

LOCK = ".lock"
"""A file without content in the folder; the lock is the operating system's, so that a killed process holds none."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made where it is missing; readers may come and go.

    Raises:
        UsageError: if another process writes into the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(
            f"{folder} is being written by another process; wait until it has ended, or use another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()
