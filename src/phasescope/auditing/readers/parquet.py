"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import BrokenRecordError, first_line
from ..samples import PARTS, Columns
from ..writing import writing
from .base import AbstractReader, Change, Record, Row, file_of
from .jsonl import PLAIN

BATCH = 1024
"""Rows held at a time, of columns that may hold long prompts."""


class Parquet(AbstractReader):
    """One sample a row, with a column each for prompt, needle, position and score."""

    columns = PLAIN

    def fits(self, source: str, first: Record | None) -> bool:
        """By its ending."""
        return source.lower().endswith((".parquet", ".pq"))

    def rows(self, source: str, columns: Columns) -> Iterator[Row]:
        """One record a row; only the columns that may be needed are read."""
        file = _opened(file_of(source))
        wanted = {path.partition(".")[0] for part in PARTS for path in getattr(columns, part)}
        wanted |= {path for part in PARTS for path in getattr(columns, part)}
        names = [name for name in file.schema_arrow.names if name in wanted] or None
        total, number = max(file.metadata.num_rows, 1), 0
        for batch in _batches(file, source, names):
            for record in batch.to_pylist():
                number += 1
                yield Row(f"{source}, row {number}", record, number / total)

    def write(self, source: str, out: Path, columns: Columns, change: Change) -> None:
        """Columns that a pad does not touch keep their values and types."""
        file = _opened(file_of(source))
        schema, number = file.schema_arrow, 0
        with writing(out) as part, pq.ParquetWriter(part, schema) as writer:
            for batch in _batches(file, source, None):
                records = batch.to_pylist()
                for index, record in enumerate(records):
                    pad = change(number)
                    number += 1
                    if pad is not None and pad.tokens:
                        records[index] = self.padded(record, columns, pad)
                writer.write_batch(pa.RecordBatch.from_pylist(records, schema=schema))


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise BrokenRecordError(f"{path} is no parquet file that can be read: {first_line(error)}") from None


def _batches(file: pq.ParquetFile, source: str, names: list[str] | None) -> Iterator[pa.RecordBatch]:
    size = 65536 if names and not {"prompt", "input", "text", "context"} & set(names) else BATCH
    try:
        yield from file.iter_batches(batch_size=size, columns=names)
    except (pa.ArrowException, OSError) as error:
        raise BrokenRecordError(f"{source} is damaged: {first_line(error)}; copy it anew") from None
