"""Writing a large file so that a reader, or a kill, never meets half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError


@contextmanager
def writing(out: Path) -> Iterator[BinaryIO]:
    """A file beside the target that takes its place once everything is written."""
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file")
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
