"""Files that stay whole: written atomically, one writer per folder; and read with a bound and a check."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError
from pydantic_core import from_json

from .errors import BrokenRecordError, UsageError, remedy
from .records import Record, bounded, first_problem

Kind = TypeVar("Kind", bound=Record)

LARGEST_JSON = 2**28
"""Bytes of the largest JSON file that is read whole."""

BOM = b"\xef\xbb\xbf"
"""The byte-order mark that some editors put in front of text."""

LOCK = ".lock"
"""A file without content in the folder; the lock is the operating system's, so that a killed process holds none."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made where it is missing; readers may come and go.

    Raises:
        UsageError: if another process writes into the folder, or it cannot be written.
    """
    lock = FileLock(folder / LOCK)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line why a file could not be written, and what to do.

    Raises:
        UsageError: in the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; {remedy(error)}") from None


@contextmanager
def temporary(path: Path) -> Iterator[Path]:
    """A path beside another, which is moved there when all is written and removed when that fails.

    No two calls share one, in no process: two reports may be written into one folder at once, and the later one stands.

    Raises:
        UsageError: if the disk is full, or the folder cannot be written.
    """
    part = path.with_name(f".{path.name[:200]}.{os.getpid()}-{secrets.token_hex(4)}.part")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file so that a reader, or a kill, never meets half of it.

    Raises:
        UsageError: if it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    with temporary(path) as part, part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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
    return content.removeprefix(BOM)


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


def read_record(path: Path, kind: type[Kind]) -> Kind:
    """Read a JSON file that holds one record.

    Raises:
        UsageError: if it cannot be read.
        BrokenRecordError: if it does not hold such a record; the line names the field, its value, and what is allowed.
    """
    try:
        return kind.model_validate_json(read_bytes(path))
    except ValidationError as error:
        raise BrokenRecordError(
            f"{path} is damaged: {first_problem(error, kind.__name__)}; restore it, or make it anew"
        ) from None
