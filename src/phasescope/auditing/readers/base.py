"""What every reader of benchmark files does: records, samples, and records with pads written anew."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import BrokenRecordError, UsageError
from ..samples import ABSENT, Columns, Message, Sample, at_path, position_of, score_of, text_of, with_path

Record = dict[str, Any]


class Row(NamedTuple):
    """One record of a file.

    Attributes:
        where: the line or row, as an error message names it.
        record: its content.
        done: share of the file that has been read, 0 to 1.
    """

    where: str
    record: Record
    done: float


class Pad(NamedTuple):
    """What a fix puts in front of one sample.

    Attributes:
        tokens: how many.
        text: the same as text; None where the file holds positions only.
    """

    tokens: int
    text: str | None


Change = Callable[[int], Pad | None]
"""From a record's number, from 0, to the pad that it gets."""


class AbstractReader(ABC):
    """One file format.

    Attributes:
        columns: where the parts of a sample stand unless the user says otherwise.
        note: what a report must say of samples that come from here; empty for nothing.
        fixable: whether the file is a benchmark that can be asked again, not a log of answers.
    """

    columns: Columns
    note: str = ""
    fixable: bool = True

    @abstractmethod
    def fits(self, source: str, first: Record | None) -> bool:
        """Whether a source looks like this format, from its name and first JSON line."""

    @abstractmethod
    def rows(self, source: str, columns: Columns) -> Iterator[Row]:
        """All records, streamed.

        Raises:
            UsageError: if there is nothing to read.
            BrokenRecordError: for a record that cannot be read, named by its line.
        """

    def samples(self, row: Row, columns: Columns) -> list[Sample]:
        """The samples of one record, with the columns that were found in the first one."""
        record, where = row.record, row.where
        prompt = _value(record, columns.prompt)
        needle = _value(record, columns.needle)
        position = _value(record, columns.position)
        score = _value(record, columns.score)
        return [
            Sample(
                where,
                None if prompt is None else conversation(prompt) or text_of(prompt),
                None if needle is None else text_of(needle),
                None if position is None else position_of(position, where, columns.position[0]),
                None if score is None else score_of(score, where, columns.score[0]),
            )
        ]

    def padded(self, record: Record, columns: Columns, pad: Pad) -> Record:
        """A record with a pad in front of its prompt, its position moved, and its score emptied.

        The score belongs to the prompt before; left in place it would be folded at a phase it was not
        measured at.
        """
        if pad.text is not None:
            (path,) = columns.prompt
            record = with_path(record, path, pad.text + str(at_path(record, path)))
        for path in columns.position:
            before = position_of(at_path(record, path), "", path)
            if before is not None:
                record = with_path(record, path, before + pad.tokens)
        for path in columns.score:
            if at_path(record, path) is not ABSENT:
                record = with_path(record, path, None)
        return record

    def write(self, source: str, out: Path, columns: Columns, change: Change) -> None:
        """Write the file anew, with pads in some records and everything else as it was."""
        raise UsageError(
            f"{source} holds answers, not a benchmark to be asked again; fix the benchmark's own file"
        )


def conversation(value: Any) -> tuple[Message, ...] | None:
    """The messages of a conversation with their texts; None for anything else."""
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(message, Mapping) and "content" in message for message in value):
        return None
    return tuple(
        {"role": str(message.get("role", "user")), "content": _content(message["content"])}
        for message in value
    )


def _content(value: Any) -> str:
    """A message's text; of several parts those that are text."""
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, Mapping))
    return str(value or "")


def _value(record: Record, path: tuple[str, ...]) -> Any:
    """The value at the one path that was found, None where this record lacks it."""
    if not path:
        return None
    if path[0] in record:
        return record[path[0]]
    value = at_path(record, path[0])
    return None if value is ABSENT else value


def parsed(line: bytes, path: str, number: int) -> Record:
    """One JSON line as a record.

    Raises:
        BrokenRecordError: naming file and line.
    """
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(
            f"{path}, line {number}: not JSON ({error}); restore the line or remove it"
        ) from None
    if not isinstance(record, dict):
        raise BrokenRecordError(
            f"{path}, line {number}: {type(record).__name__} instead of an object with columns; give one object a line"
        )
    return record


def file_of(source: str) -> Path:
    """The file behind a source.

    Raises:
        UsageError: if it is none that can be read.
    """
    path = Path(source)
    if path.is_dir():
        raise UsageError(f"{source} is a folder; give one file")
    if not path.is_file():
        raise UsageError(f"no file {source}; give a benchmark's file, or file.py:function for a generator")
    return path
