"""Readers of benchmark files and logs, one file per format."""

from __future__ import annotations

from pathlib import Path

from ...errors import BrokenRecordError, UnknownNameError, UsageError
from ...text.tokens import Tokenizer
from .base import AbstractReader as AbstractReader
from .base import Change as Change
from .base import Pad as Pad
from .base import Record, parsed
from .csv import Csv
from .generator import Generator
from .inspect import Inspect
from .jsonl import JsonLines
from .lm_eval import LmEval
from .needlehaystack import NeedleHaystack
from .parquet import Parquet
from .ruler import Ruler

FORMATS: dict[str, type[AbstractReader]] = {
    "python": Generator,
    "parquet": Parquet,
    "csv": Csv,
    "inspect": Inspect,
    "needlehaystack": NeedleHaystack,
    "lm-eval": LmEval,
    "ruler": Ruler,
    "jsonl": JsonLines,
}
"""By name, in the order in which they are tried: the more particular first."""


def reader_for(
    source: str, format: str | None = None, *, tokenizer: Tokenizer | None = None, seed: int = 0
) -> tuple[str, AbstractReader]:
    """The reader of a source, named or recognised by ending and first line.

    Returns:
        the format's name and its reader.

    Raises:
        UnknownNameError: for a format that there is none of.
        UsageError: if the source is not there, is empty, or is of no known format.
    """

    def made(name: str) -> AbstractReader:
        kind = FORMATS[name]
        return kind(tokenizer, seed) if issubclass(kind, Generator) else kind()

    if format is not None:
        if format not in FORMATS:
            raise UnknownNameError(f"unknown format {format!r}; known: {', '.join(sorted(FORMATS))}")
        return format, made(format)
    generator = made("python")
    if generator.fits(source, None):
        return "python", generator
    first = _first(source)
    for name in FORMATS:
        reader = made(name)
        if reader.fits(source, first):
            return name, reader
    raise UsageError(
        f"{source} is of no format that is recognised; name one with --format: {', '.join(sorted(FORMATS))}"
    )


def _first(source: str) -> Record | None:
    """The first JSON object of a file, from its first line or, for a log of inspect, from its keys."""
    path = Path(source)
    if path.is_dir():
        raise UsageError(f"{source} is a folder; give one file")
    if not path.is_file():
        raise UsageError(f"no file {source}; give a benchmark's file, or file.py:function for a generator")
    if path.stat().st_size == 0:
        raise UsageError(f"{source} is empty; give a file with samples")
    if path.suffix.lower() in (".parquet", ".pq", ".csv", ".tsv", ".eval"):
        return None
    with path.open("rb") as file:
        number, line = next(((n, text) for n, text in enumerate(file, 1) if not text.isspace()), (1, b""))
    if path.suffix.lower() != ".json":
        return parsed(line, source, number)
    try:
        return parsed(line, source, number)
    except BrokenRecordError:
        # A log that is laid out over many lines.
        return parsed(path.read_bytes(), source, 1)
