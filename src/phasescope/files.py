"""Files that stay whole: JSON written atomically, logs that are appended to, and one writer per folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock, Timeout
from pydantic import ValidationError
from pydantic_core import from_json

from .errors import BrokenRecordError, UsageError
from .records import Dropped, Observation, Record, bounded, first_problem

Kind = TypeVar("Kind", bound=Record)

LARGEST_JSON = 2**28
"""Bytes of the largest JSON file that is read whole."""

LOCK = ".lock"
"""A file without content in the folder; the lock is the operating system's, so that a killed process holds none."""


OBSERVATIONS = "observations.jsonl"


def find_log(folder: Path) -> Path:
    """Where the observations of a run folder are, or will be."""
    return folder / OBSERVATIONS


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


def read_bytes(path: Path, most: int = LARGEST_JSON) -> bytes:
    """The content of a file, without the byte-order mark that some editors put in front of text.

    Raises:
        UsageError: if it cannot be read, or is no regular file.
        BrokenRecordError: if it is larger than `most` bytes.
    """
    try:
        if not path.is_file():  # a pipe or a device might never end
            raise UsageError(f"cannot read {path}: {'no such file' if not path.exists() else 'not a file'}")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > most:
        raise BrokenRecordError(f"{path} has more than {most:,} bytes, which no such file needs")
    return content.removeprefix(b"\xef\xbb\xbf")


def parse_json(content: bytes | str, where: str, *, finite: bool = True) -> Any:
    """A JSON value: strict JSON in UTF-8, at most some 200 deep, without lone surrogates and endless numbers.

    Args:
        content: of a file, a line of one, or an answer.
        where: what to call it in a message.
        finite: refuse Infinity and NaN, which JSON does not know, but configurations of models hold.

    Raises:
        BrokenRecordError: in one line.
    """
    try:
        value = from_json(content, allow_inf_nan=not finite)
        return bounded(value, sys.float_info.max) if finite else value
    except ValueError as error:
        raise BrokenRecordError(f"{where} is not JSON: {' '.join(str(error).split())[:300]}") from None


def read_json(path: Path, most: int = LARGEST_JSON, *, finite: bool = True) -> Any:
    """Read a JSON file of no fixed form; where its form is known, `read_record` checks it too.

    Raises:
        UsageError: if it cannot be read.
        BrokenRecordError: if it is not JSON, or has more than `most` bytes.
    """
    return parse_json(read_bytes(path, most), str(path), finite=finite)


def read_record(path: Path, kind: type[Kind], most: int = LARGEST_JSON) -> Kind:
    """Read a JSON file that holds one record.

    Raises:
        UsageError: if it cannot be read.
        BrokenRecordError: if it does not hold such a record; the line names the field, its value, and what is allowed.
    """
    try:
        return kind.model_validate_json(read_bytes(path, most))
    except ValidationError as error:
        raise BrokenRecordError(
            f"{path} is damaged: {first_problem(error, kind.__name__)}; restore it, or make it anew"
        ) from None
