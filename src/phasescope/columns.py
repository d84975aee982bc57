"""Records as columns: arrow tables and pandas frames."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from .errors import MissingExtraError
from .observations import INTEGERS, MISSING, NUMBERS, TEXTS, Observations
from .records import SCHEMA, Observation, Record


def arrow_table(kind: type[Record], records: Sequence[Record]) -> Any:
    """A `pyarrow.Table` with a column per field; mappings and lists are JSON text.

    Args:
        kind: the class of the records, which names the columns also where there are none.
        records: the rows.
    """
    import pyarrow as pa  # takes a while to import

    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    columns = {}
    for name, field in kind.model_fields.items():
        values = [getattr(record, name) for record in records]
        types = _types(field.annotation)
        if any(isinstance(value, (dict, list, tuple)) for value in values):
            values = [json.dumps(value, sort_keys=True) for value in values]
            types = [str]
        columns[name] = pa.array(values, next((kinds[t] for t in types if t in kinds), pa.string()))
    return pa.table(columns)


def observation_table(parts: Sequence[Observations]) -> Any:
    """All observations of several conditions as `arrow_table` has them, without a record for each."""
    import pyarrow as pa  # takes a while to import

    def column(part: Observations, name: str) -> Any:
        if name in INTEGERS:
            values = part.integers(name)
            return pa.array(values, mask=values == MISSING)
        if name in NUMBERS:
            return pa.array(part.numbers(name), from_pandas=True)
        if name in TEXTS:
            code_N, texts = part.texts(name)
            codes = pa.array(code_N, mask=code_N == MISSING)
            return pa.DictionaryArray.from_arrays(codes, pa.array(texts, pa.string())).cast(pa.string())
        return pa.array(np.full(len(part), SCHEMA))

    return pa.concat_tables(
        pa.table({name: column(part, name) for name in Observation.model_fields})
        for part in [*parts] or [Observations()]
    )


def _types(annotation: Any) -> list[type]:
    """The classes that an annotation names: int for Literal[1], int and None for an optional index."""
    inner = [kind for part in get_args(annotation) for kind in _types(part)]
    return inner or [annotation if isinstance(annotation, type) else type(annotation)]


class Tabular(ABC):
    """A result with a table, for pyarrow and pandas."""

    @abstractmethod
    def to_arrow(self) -> Any:
        """The table as a `pyarrow.Table`."""

    def to_pandas(self) -> Any:
        """The same as a `pandas.DataFrame`.

        Raises:
            MissingExtraError: if pandas is not installed.
        """
        try:
            importlib.import_module("pandas")
        except ImportError:
            raise MissingExtraError(
                "a data frame needs pandas: pip install pandas; to_arrow() works without"
            ) from None
        return self.to_arrow().to_pandas()
