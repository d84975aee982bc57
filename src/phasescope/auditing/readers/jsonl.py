"""JSON lines with plain columns, and the storage that other JSON-lines formats share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ...errors import UsageError
from ..samples import Columns
from ..writing import writing
from .base import AbstractReader, Change, Record, Row, file_of, parsed

PLAIN = Columns(
    prompt=("prompt", "input", "text", "context"),
    needle=("needle", "answer", "target"),
    position=("position", "token_position", "needle_position"),
    score=("score", "correct", "accuracy"),
)
"""Column names that are tried where the user names none."""


class JsonLines(AbstractReader):
    """One JSON object a line, with a column each for prompt, needle, position and score."""

    columns = PLAIN

    def fits(self, source: str, first: Record | None) -> bool:
        """Any file whose first line is a JSON object."""
        return first is not None

    def rows(self, source: str, columns: Columns) -> Iterator[Row]:
        """One record a line; blank lines are passed over."""
        path = file_of(source)
        size, read = max(path.stat().st_size, 1), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                read += len(line)
                if not line.isspace():
                    yield Row(f"{path}, line {number}", parsed(line, str(path), number), read / size)

    def write(self, source: str, out: Path, columns: Columns, change: Change) -> None:
        """Lines without a pad keep their bytes."""
        if not self.fixable:
            super().write(source, out, columns, change)
        path, records = file_of(source), 0
        with path.open("rb") as file, writing(out) as part:
            for number, line in enumerate(file, start=1):
                if line.isspace():
                    part.write(line)
                    continue
                pad = change(records)
                records += 1
                if pad is not None and pad.tokens:
                    record = self.padded(parsed(line, str(path), number), columns, pad)
                    line = _dumped(record, like=line)
                part.write(line)


def _dumped(record: Record, like: bytes) -> bytes:
    """A record as a line in the manner of the line that it replaces: ASCII or not, spaced or not."""
    try:
        spaced = b'": ' in like
        separators = None if spaced else (",", ":")
        text = json.dumps(record, ensure_ascii=like.isascii(), separators=separators)
    except (TypeError, ValueError) as error:
        raise UsageError(f"a record cannot be written as JSON: {error}") from None
    ending = b"\r\n" if like.endswith(b"\r\n") else b"\n" if like.endswith(b"\n") else b""
    return text.encode() + ending
