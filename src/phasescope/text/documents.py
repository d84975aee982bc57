"""Documents of files, folders and data sets, streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError, UsageError, first_line, installing
from ..files import BOM, parse_json

LINES = (".jsonl", ".ndjson")
ROWS_AT_ONCE = 1024  # of a parquet file


def text_files(paths: Iterable[Path], suffixes: Iterable[str] = ()) -> list[Path]:
    """The files that `read_documents` reads, in its order.

    Args:
        paths: files, or folders that are searched to the bottom; what is hidden in a folder stays hidden.
        suffixes: take only files of a folder with these endings; all by default.

    Raises:
        UsageError: if a path does not exist, or there is no file.
    """
    files = [file for path in paths for file in _files_of(path, suffixes)]
    if not files:
        named = ", ".join(map(str, paths)) or "no path"
        endings = f" with the endings {', '.join(suffixes)}" if suffixes else ""
        raise UsageError(f"no text: there are no files{endings} in {named}")
    return files


def read_documents(
    paths: Sequence[Path],
    suffixes: Iterable[str] = (),
    *,
    column: str = "text",
    cut: int | None = None,
    read: Callable[[int], None] = lambda size: None,
    skipped: Callable[[Path], None] = lambda file: None,
) -> Iterator[str]:
    """Documents of files and folders, in the order of their names.

    A line of a `.jsonl` file is a document (its field `column`), as is a row of a `.parquet` file; any other file
    is one document, and is held in memory whole unless it is cut. A null is no document.

    Args:
        paths: files, or folders that are searched to the bottom.
        suffixes: as for `text_files`.
        column: the field or column that holds the text.
        cut: cut text files into documents of so many characters, or a little more: they end where a line does.
        read: called with the number of bytes read since the last call.
        skipped: called with each file of a folder that is not valid UTF-8; such a file on its own is an error.

    Raises:
        UsageError: if a path does not exist, there is no file, or a record has no text.
        BrokenRecordError: if a line is not JSON.
    """
    text_files(paths, suffixes)
    for path in paths:
        for file in _files_of(path, suffixes):
            try:
                for text, size in _documents_of(file, column, cut):
                    read(size)
                    if text is not None:
                        yield text
            except UnicodeDecodeError:
                if not path.is_dir():
                    raise UsageError(f"{file} is not valid UTF-8; convert it, or leave it out") from None
                skipped(file)


def dataset_documents(
    name: str, *, config: str | None = None, split: str = "train", column: str = "text"
) -> Iterator[str]:
    """Documents of a data set of the `datasets` library, by name or folder, streamed. A null is no document.

    Raises:
        MissingExtraError: if `datasets` is not installed.
        UsageError: if it cannot be read, or has no such column.
    """
    try:
        import datasets
    except ModuleNotFoundError:
        raise MissingExtraError(
            f"this needs datasets, which the base install leaves out; install it with: {installing('text')}"
        ) from None
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    try:
        for row in datasets.load_dataset(name, config, split=split, streaming=True):
            text = _text_of(row, column, f"data set {name}")
            if text is not None:
                yield text
    except UsageError:
        raise
    except Exception as error:  # the library fails in whatever way its reader meets first
        raise UsageError(f"data set {name!r} cannot be read: {first_line(error)}") from None


def _files_of(path: Path, suffixes: Iterable[str]) -> list[Path]:
    if not path.exists():
        raise UsageError(f"no text at {path}: there is no such file or folder")
    if not path.is_dir():
        return [path]
    wanted = tuple(f".{suffix.lstrip('.')}" for suffix in suffixes)
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and (not wanted or file.name.endswith(wanted))
    )


def _documents_of(file: Path, column: str, cut: int | None) -> Iterator[tuple[str | None, int]]:
    """Documents, each with the bytes that were read for it."""
    if file.suffix == ".parquet":
        return _rows(file, column)
    if file.suffix in LINES:
        return _lines(file, column)
    return _pieces(file, cut)


def _rows(file: Path, column: str) -> Iterator[tuple[str | None, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            names, size = opened.schema_arrow.names, file.stat().st_size
            if column not in names:
                raise UsageError(_no_column(str(file), column, names))
            for batch in opened.iter_batches(ROWS_AT_ONCE, columns=[column]):
                for text in batch.column(0).to_pylist():
                    yield _text_of({column: text}, column, str(file)), size // opened.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UsageError(f"{file} cannot be read as parquet: {first_line(error)}; write it again") from None


def _lines(file: Path, column: str) -> Iterator[tuple[str | None, int]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"{file}, line {number}"
            content = line.strip().removeprefix(BOM)
            record = parse_json(content, where, finite=False) if content else {column: None}
            if not isinstance(record, dict):
                raise UsageError(f'{where}: each line is an object with a field "{column}"')
            yield _text_of(record, column, where), len(line)


def _pieces(file: Path, cut: int | None) -> Iterator[tuple[str, int]]:
    if cut is None:
        yield file.read_text(encoding="utf-8"), file.stat().st_size
        return
    with file.open(encoding="utf-8") as lines:
        piece: list[str] = []
        length = 0
        for line in lines:
            piece.append(line)
            length += len(line)
            if length >= cut:
                yield (text := "".join(piece)), len(text.encode())
                piece, length = [], 0
        if piece:
            yield (text := "".join(piece)), len(text.encode())


def _text_of(record: Mapping[str, Any], column: str, where: str) -> str | None:
    if column not in record:
        raise UsageError(_no_column(where, column, record))
    text = record[column]
    if text is None:
        return None
    if not isinstance(text, str):
        raise UsageError(
            f"{where} holds {str(text)[:40]!r} in {column!r}, which is not text; name another column"
        )
    return text


def _no_column(where: str, column: str, known: Iterable[str]) -> str:
    return f"{where} has no text in {column!r}; it has {', '.join(sorted(known)) or 'nothing'}; give --column"
