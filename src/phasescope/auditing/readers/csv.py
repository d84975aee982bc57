"""CSV and TSV with a header line."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import BrokenRecordError, UsageError
from ..samples import Columns
from ..writing import writing
from .base import AbstractReader, Change, Record, Row, file_of
from .jsonl import PLAIN

# The library's 128 KB are less than one long prompt.
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


class Csv(AbstractReader):
    """One sample a row; the first line names the columns. `.tsv` is separated by tabs."""

    columns = PLAIN

    def fits(self, source: str, first: Record | None) -> bool:
        """By its ending."""
        return source.lower().endswith((".csv", ".tsv"))

    def rows(self, source: str, columns: Columns) -> Iterator[Row]:
        """One record a row; a row of another width is refused."""
        path = file_of(source)
        size, read = max(path.stat().st_size, 1), 0
        for line, header, cells in _cells(path):
            # Characters, not bytes: exact enough to show how far the file is read.
            read += sum(map(len, cells)) + len(cells)
            yield Row(f"{path}, line {line}", dict(zip(header, cells, strict=True)), min(read / size, 1.0))

    def write(self, source: str, out: Path, columns: Columns, change: Change) -> None:
        """Rows keep their cells; quotes are set where they are needed."""
        path = file_of(source)
        with path.open("rb") as file:
            ending = "\r\n" if file.readline().endswith(b"\r\n") else "\n"
        with writing(out) as part:
            text = io.TextIOWrapper(part, encoding="utf-8", newline="", write_through=True)
            writer = csv.writer(text, delimiter=_delimiter(path), lineterminator=ending)
            for number, (_, header, cells) in enumerate(_cells(path)):
                if number == 0:
                    writer.writerow(header)
                record: dict[str, Any] = dict(zip(header, cells, strict=True))
                pad = change(number)
                if pad is not None and pad.tokens:
                    record = self.padded(record, columns, pad)
                writer.writerow("" if cell is None else cell for cell in record.values())
            text.flush()
            text.detach()


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _cells(path: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    """Line number, header and cells of each row."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=_delimiter(path), strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) < len(header):
                raise UsageError(f"{path}, line 1: a column name stands there twice; give each its own")
            for cells in reader:
                if len(cells) != len(header) and cells:
                    raise BrokenRecordError(
                        f"{path}, line {reader.line_num}: {len(cells)} cells, the header has {len(header)}; "
                        "restore the line"
                    )
                if cells:
                    yield reader.line_num, header, cells
        except csv.Error as error:
            raise BrokenRecordError(f"{path}, line {reader.line_num}: {error}; restore the line") from None
        except UnicodeDecodeError as error:
            raise BrokenRecordError(
                f"{path}, after line {reader.line_num}: not UTF-8 ({error.reason}); save it as UTF-8"
            ) from None
