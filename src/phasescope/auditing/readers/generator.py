"""Samples from a Python function that the user names: `file.py:function` or `module:function`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import PhasescopeError, UsageError
from ...text.scorers import own_function
from ...text.tokens import Tokenizer
from ..samples import Columns, short
from ..writing import writing
from .base import AbstractReader, Change, Record, Row
from .jsonl import PLAIN


class Generator(AbstractReader):
    """Records that a function yields, one dictionary per sample, with the columns of a JSON line.

    A parameter `tokenizer` is given the `Tokenizer`, a parameter `rng` a numpy generator of the audit's
    seed. The user's code runs as it stands, and only because the user names it.
    """

    columns = PLAIN

    def __init__(self, tokenizer: Tokenizer | None = None, seed: int = 0) -> None:
        self.tokenizer = tokenizer
        self.seed = seed

    def fits(self, source: str, first: Record | None) -> bool:
        """By its colon: `file.py:function`."""
        place, colon, name = source.rpartition(":")
        # A drive letter's colon is followed by no name.
        return bool(colon) and name.isidentifier() and len(place) > 1 and not Path(source).exists()

    def rows(self, source: str, columns: Columns) -> Iterator[Row]:
        """One record per thing that the function yields."""
        function, arguments = self._function(source)
        try:
            made: Any = function(**arguments)
            if not isinstance(made, Iterable) or isinstance(made, str | dict):
                raise UsageError(f"{source} gives {short(made)}; it must yield one dictionary per sample")
            for number, record in enumerate(made, start=1):
                if not isinstance(record, dict):
                    raise UsageError(
                        f"{source}, sample {number}: {short(record)}; yield a dictionary such as "
                        "{'prompt': …, 'needle': …} or {'position': …}"
                    )
                yield Row(f"{source}, sample {number}", _plain(record), 0.0)
        except PhasescopeError:
            raise
        except Exception as error:  # whatever a user's code raises
            raise UsageError(
                f"{source} raised {type(error).__name__}: {error}; correct the function"
            ) from None

    def write(self, source: str, out: Path, columns: Columns, change: Change) -> None:
        """As JSON lines: there is no file to write anew."""
        with writing(out) as part:
            for number, row in enumerate(self.rows(source, columns)):
                pad = change(number)
                record = row.record if pad is None else self.padded(row.record, columns, pad)
                part.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")

    def _function(self, source: str) -> tuple[Callable[..., Any], dict[str, Any]]:
        place, _, name = source.rpartition(":")
        function = own_function(place, name)
        offered = {"tokenizer": self.tokenizer, "rng": np.random.default_rng(self.seed)}
        wanted = inspect.signature(function).parameters
        if "tokenizer" in wanted and self.tokenizer is None:
            raise UsageError(f"{source} asks for a tokenizer; give one with --tokenizer")
        return function, {key: value for key, value in offered.items() if key in wanted}


def _plain(record: dict[Any, Any]) -> Record:
    """Numbers of numpy as Python's own, so that a record can be written as JSON."""
    return {
        str(key): value.item() if isinstance(value, np.generic) else value for key, value in record.items()
    }
