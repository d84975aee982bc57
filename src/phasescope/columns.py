"""Records as columns: arrow tables and pandas frames."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any, get_args

import pyarrow as pa

from .errors import MissingExtraError
from .records import Record

KINDS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
"""Of columns whose fields are such values; all others are text."""


def arrow_table(kind: type[Record], records: Sequence[Record]) -> Any:
    """A `pyarrow.Table` with a column per field; mappings and lists are JSON text.

    Args:
        kind: the class of the records, which names the columns also where there are none.
        records: the rows.
    """
    columns = {}
    for name, field in kind.model_fields.items():
        values = [getattr(record, name) for record in records]
        types = _types(field.annotation)
        if any(isinstance(value, (dict, list, tuple)) for value in values):
            values = [json.dumps(value, sort_keys=True) for value in values]
            types = [str]
        columns[name] = pa.array(values, next((KINDS[t] for t in types if t in KINDS), pa.string()))
    return pa.table(columns)


def _types(annotation: Any) -> list[type]:
    """The classes that an annotation names: int for Literal[1], int and None for an optional index."""
    inner = [kind for part in get_args(annotation) for kind in _types(part)]
    return inner or [annotation if isinstance(annotation, type) else type(annotation)]


def pandas_frame(table: Any) -> Any:
    """A `pandas.DataFrame` of an arrow table.

    Raises:
        MissingExtraError: if pandas is not installed.
    """
    try:
        importlib.import_module("pandas")
    except ImportError:
        raise MissingExtraError(
            "a data frame needs pandas: pip install pandas; to_arrow() works without"
        ) from None
    return table.to_pandas()
