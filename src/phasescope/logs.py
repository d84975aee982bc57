"""The log of observations: whole batches, each with a digest, appended, resumed, and compressed when it is finished.

A batch is a line that names its cluster, counts its trials and holds a digest of their lines, and then one line per
trial. Version 0.1 wrote the lines of the trials alone; such a log is read, and goes on, without digests before its end.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from pydantic import AliasChoices, Field, ValidationError

from .errors import BrokenRecordError, UsageError
from .files import read_bytes, temporary, writing
from .records import Dropped, Name, Observation, Record, first_problem

OBSERVATIONS = "observations.jsonl"
COMPRESSED = "observations.jsonl.zst"
TIMINGS = "timings.jsonl"
LONGEST_LINE = 2**24
"""Bytes of the longest line that is read: an observation has a few hundred, and the text of an answer."""

Line = Observation | Dropped
Kind = TypeVar("Kind", bound=Record)


FIRST = "none"
"""What the first batch of a log comes after."""


class Batch(Record):
    """The line before the trials of a batch.

    Attributes:
        batch: the cluster of its trials.
        trials: how many lines follow.
        digest: of those lines, as bytes.
        after: digest of the batch before, `FIRST` for none, so that a batch that was taken out is missed; None in
            logs of older versions.
    """

    batch: Name
    trials: int = Field(ge=1)
    digest: Name
    after: Name | None = None


class Timing(Record):
    """What a batch cost.

    Attributes:
        condition, cluster, trials: which batch, and how many trials it has.
        seconds: that answering it took.
        tokens: prompt tokens that were read.
    """

    condition: Name = Field(validation_alias=AliasChoices("condition", "arm"))
    cluster: Name
    trials: int = Field(ge=0)
    seconds: float = Field(ge=0)
    tokens: int = Field(ge=0, lt=2**63)


def append_timing(folder: Path, timing: Timing) -> None:
    """Write what a batch cost, in the only file that differs between two runs of the same thing."""
    path = folder / TIMINGS
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(timing.model_dump_json() + "\n")


def read_timings(folder: Path) -> dict[str, list[Timing]]:
    """What the batches of each condition cost; a batch that was measured twice counts as it was last.

    A line that a kill left half written is passed over with the one that was appended to it.
    """
    path, last = folder / TIMINGS, dict[tuple[str, str], Timing]()
    if path.is_file():
        for line in read_bytes(path).split(b"\n"):
            with suppress(ValidationError):
                timing = Timing.model_validate_json(line)
                last[timing.condition, timing.cluster] = timing
    costs: dict[str, list[Timing]] = {}
    for timing in last.values():
        costs.setdefault(timing.condition, []).append(timing)
    return costs


def find_log(folder: Path) -> Path:
    """Where the observations of a run folder are, or will be."""
    plain, compressed = folder / OBSERVATIONS, folder / COMPRESSED
    return compressed if compressed.exists() and not plain.exists() else plain


def read_log(path: Path) -> Iterator[Line]:
    """Read a log line by line: observations, and the trials that were dropped.

    A last line without its newline, and a last batch that is not whole, are what a kill leaves behind: the line is
    passed over, and the other trials of the batch are read.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: for any other line that is not an observation, named by its number, and for a batch that is
            not as it was written.
    """
    for line, _ in _read(path):
        yield line


class ObservationLog:
    """An append-only file with one line per planned trial, written one planned batch at a time.

    `resume` keeps the whole batches of an interrupted run and cuts what a kill left half written, so
    that the finished file has the same bytes as one that was never interrupted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest: str | None = None

    def _last(self) -> str:
        """Digest of the last batch."""
        if self._digest is None and self.path.exists():
            with self.path.open("rb") as file:
                heads = [line for line in file if line.startswith(b'{"batch":')]
            self._digest = Batch.model_validate_json(heads[-1]).digest if heads else None
        return self._digest or FIRST

    def resume(self, batch_sizes: Sequence[int]) -> list[Line]:
        """Cut the file back to whole batches of the plan and return the lines that stay.

        Args:
            batch_sizes: planned number of observations per batch, in plan order.

        Raises:
            BrokenRecordError: if a line before the last is broken, a batch is not as it was written, there are more
                lines than planned, or a compressed log has fewer.
        """
        if not self.path.exists():
            return []
        ends = np.cumsum([0, *batch_sizes])
        boundaries = set(ends.tolist())
        kept: list[Line] = []
        whole = offset = 0
        for line, after in _read(self.path):
            kept.append(line)
            if len(kept) in boundaries:
                whole, offset = len(kept), after
        if len(kept) > ends[-1]:
            raise BrokenRecordError(
                f"{self.path} has {len(kept)} observations, the plan {ends[-1]}; use another run folder"
            )
        if self.path.suffix != ".zst":
            with writing(self.path), self.path.open("rb+") as file:
                file.truncate(offset)
            self._digest = None  # of the batches that stay
        elif whole < ends[-1]:
            raise BrokenRecordError(
                f"{self.path} has {whole} of {ends[-1]} observations; only a finished log stays compressed: "
                "give `zstd -d --rm` its name, then the same command again"
            )
        return kept[:whole]

    def append(self, batch: Sequence[Line]) -> None:
        """Write one batch and force it to disk.

        Raises:
            UsageError: if the disk is full; half a batch may then be left, and is cut when the run goes on.
        """
        lines = "".join(line.model_dump_json(exclude_none=True) + "\n" for line in batch).encode()
        digest = hashlib.blake2b(lines, digest_size=8).hexdigest()
        head = Batch(
            batch=batch[0].cluster, trials=len(batch), digest=digest, after=self._last()
        ).model_dump_json()
        self._digest = digest
        with writing(self.path), self.path.open("ab") as file:
            file.write(head.encode() + b"\n" + lines)
            file.flush()
            os.fsync(file.fileno())


def compress(path: Path) -> Path:
    """Compress a finished log with zstd, to about a tenth; every reader takes it as it is.

    Args:
        path: of the log.

    Returns:
        where it is now.

    Raises:
        UsageError: if the disk is full; the log is then as it was.
    """
    import pyarrow as pa  # slow to import, and seldom needed

    if path.suffix == ".zst":
        return path
    out = path.with_name(path.name + ".zst")
    with temporary(out) as part, path.open("rb") as plain:
        with pa.CompressedOutputStream(str(part), "zstd") as packed:
            while chunk := plain.read(2**20):
                packed.write(chunk)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
    path.unlink()
    return out


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        if path.suffix != ".zst":
            with path.open("rb") as file:
                yield file
            return
        import pyarrow as pa  # slow to import, and seldom needed

        with path.open("rb"), pa.input_stream(str(path), compression="zstd") as stream:
            yield io.BufferedReader(stream, 2**20)
    except OSError as error:
        if error.errno is None:  # of pyarrow: not of the disk, but of the content
            raise BrokenRecordError(f"{path} is damaged: {error}; restore it, or measure again") from None
        raise UsageError(
            f"cannot read {path}: {error.strerror}; give a run folder that `measure` wrote"
        ) from None


def _read(path: Path) -> Iterator[tuple[Line, int]]:
    """The lines of a log, each with the number of bytes up to its end; whole batches are as they were written."""
    head: Batch | None = None
    number = began = offset = seen = 0
    content = hashlib.blake2b()
    with _opened(path) as file:
        while line := file.readline(LONGEST_LINE):
            number, offset = number + 1, offset + len(line)
            if not line.endswith(b"\n"):
                if len(line) == LONGEST_LINE:
                    raise BrokenRecordError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes")
                return
            if line.startswith(b'{"batch":'):
                if head is not None and seen < head.trials:
                    raise BrokenRecordError(_changed(path, began, head, "has fewer lines than were measured"))
                before = FIRST if head is None else head.digest
                head, began, seen = _parsed(Batch, line, path, number), number, 0
                if head.after not in (None, before):
                    raise BrokenRecordError(
                        _changed(path, began, head, "does not follow the batch before it")
                    )
                content = hashlib.blake2b(digest_size=8)
                continue
            kind: type[Line] = Dropped if b'"dropped":' in line else Observation
            found = _parsed(kind, line, path, number)
            if head is not None:
                seen += 1
                content.update(line)
                if seen > head.trials:
                    raise BrokenRecordError(_changed(path, began, head, "has more lines than were measured"))
                if seen == head.trials and content.hexdigest() != head.digest:
                    raise BrokenRecordError(_changed(path, began, head, "has other lines than were measured"))
            yield found, offset


def _parsed(kind: type[Kind], line: bytes, path: Path, number: int) -> Kind:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise BrokenRecordError(
            f"{path}, line {number}: {first_problem(error, 'no JSON object')}; restore the line or cut the file there"
        ) from None


def _changed(path: Path, line: int, batch: Batch, what: str) -> str:
    return (
        f"{path}, line {line}: batch {batch.batch[:100]} of {batch.trials:,} trials {what}; restore "
        "the file, or cut it before this line and give the command of the run again"
    )
