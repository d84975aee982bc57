"""Files that stay whole: JSON written atomically, logs that are appended to, and one writer per folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from pydantic import ValidationError

from .errors import BrokenRecordError, UsageError
from .records import Dropped, Observation

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


def read_log(path: Path) -> Iterator[Observation | Dropped]:
    """Read a log line by line: observations, and the trials that were dropped.

    A last line without its newline is what a kill leaves behind; it is passed over.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: for any other line that is not an observation, named by its number.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; give a run folder that `measure` wrote"
        ) from None
    with file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield (Dropped if b'"dropped":' in line else Observation).model_validate_json(line)
            except ValidationError as error:
                problem = error.errors()[0]
                where = ".".join(str(part) for part in problem["loc"]) or "no JSON object"
                what = "" if problem["type"] == "json_invalid" else f": {problem['msg']}"
                raise BrokenRecordError(
                    f"{path}, line {number}: {where}{what}; restore the line or cut the file there"
                ) from None


class ObservationLog:
    """An append-only JSONL file with one line per planned trial, written one planned batch at a time.

    `resume` keeps the whole batches of an interrupted run and cuts what a kill left half written, so
    that the finished file has the same bytes as one that was never interrupted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def resume(self, batch_sizes: Sequence[int]) -> list[Observation | Dropped]:
        """Cut the file back to whole batches of the plan and return the lines that stay.

        Args:
            batch_sizes: planned number of observations per batch, in plan order.

        Raises:
            BrokenRecordError: if a line before the last is broken, or there are more lines than planned.
        """
        if not self.path.exists():
            return []
        kept = list(read_log(self.path))
        ends = np.cumsum([0, *batch_sizes])
        if len(kept) > ends[-1]:
            raise BrokenRecordError(
                f"{self.path} has {len(kept)} observations, the plan {ends[-1]}; use another run folder"
            )
        whole = int(ends[np.searchsorted(ends, len(kept), side="right") - 1])
        with self.path.open("rb+") as file:
            for _ in range(whole):
                file.readline()
            file.truncate(file.tell())
        return kept[:whole]

    def append(self, batch: Iterable[Observation | Dropped]) -> None:
        """Write one batch and force it to disk."""
        lines = "".join(line.model_dump_json(exclude_none=True) + "\n" for line in batch)
        with self.path.open("ab") as file:
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file so that a reader, or a kill, never meets half of it."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def dump_json(value: Any) -> str:
    """JSON with sorted keys and a final newline: the same value gives the same bytes."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or broken one is one clear line."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"{path} is not JSON: {error}") from None
