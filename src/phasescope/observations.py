"""The observations of one condition as columns: some 120 bytes each, and statistics read them as arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from .records import Observation

INTEGERS = ("layout", "source_position", "query_position", "prompt_tokens", "answer")
NUMBERS = ("score", "candidate_score", "logprob", "rival_logprob")
TEXTS = ("condition", "trial", "cluster", "block", "text")
COLUMNS = (*INTEGERS, *NUMBERS, *TEXTS)
VALUES = attrgetter(*COLUMNS)
MISSING = -1
"""Stands in a column of integers, or of codes of texts, for a value that there is not; among numbers NaN does."""


class _Texts:
    """Texts as codes: each different text is kept once."""

    def __init__(self) -> None:
        self.codes = array("i")
        self.values: list[str] = []
        self._code: dict[str | None, int] = {None: MISSING}

    def extend(self, values: Sequence[str | None]) -> None:
        for value in dict.fromkeys(values):
            if value not in self._code:
                self._code[value] = len(self.values)
                self.values.append(str(value))
        self.codes.extend(map(self._code.__getitem__, values))


def _filled(values: Sequence[Any], missing: float) -> Sequence[Any]:
    return [missing if value is None else value for value in values] if None in values else values


class Observations(Sequence[Observation]):
    """A sequence of observations that are kept as columns; each is made anew where it is asked for."""

    def __init__(self, observations: Iterable[Observation] = ()) -> None:
        self._integers = {name: array("q") for name in INTEGERS}
        self._numbers = {name: array("d") for name in NUMBERS}
        self._texts = {name: _Texts() for name in TEXTS}
        self.extend(observations)

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> Observations:
        """The observations as columns, if they are not already."""
        return observations if isinstance(observations, Observations) else cls(observations)

    def extend(self, observations: Iterable[Observation]) -> None:
        """Add observations; thousands at a time cost least."""
        columns = dict(zip(COLUMNS, zip(*map(VALUES, observations), strict=True), strict=False))
        if not columns:
            return
        for name, integers in self._integers.items():
            integers.extend(_filled(columns[name], MISSING))
        for name, numbers in self._numbers.items():
            numbers.extend(_filled(columns[name], np.nan))
        for name, texts in self._texts.items():
            texts.extend(columns[name])

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """A column of integers, `MISSING` where there is none; shape [N]."""
        return np.frombuffer(self._integers[name], dtype=np.int64)

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers, or their `margin`, NaN where there is none; shape [N]."""
        if name == "margin":
            return self.numbers("logprob") - self.numbers("rival_logprob")
        return np.frombuffer(self._numbers[name], dtype=np.float64)

    def texts(self, name: str) -> tuple[npt.NDArray[np.int32], list[str]]:
        """A column of texts: the code of each, `MISSING` where there is none, and the texts by their codes."""
        found = self._texts[name]
        return np.frombuffer(found.codes, dtype=np.int32), found.values

    def __len__(self) -> int:
        return len(self._integers["layout"])

    @overload
    def __getitem__(self, index: int) -> Observation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Observation]: ...
    def __getitem__(self, index: int | slice) -> Observation | list[Observation]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        values: dict[str, Any] = {}
        for name, integers in self._integers.items():
            values[name] = None if integers[index] == MISSING else integers[index]
        for name, numbers in self._numbers.items():
            values[name] = None if numbers[index] != numbers[index] else numbers[index]
        for name, texts in self._texts.items():
            code = texts.codes[index]
            values[name] = None if code == MISSING else texts.values[code]
        return Observation.model_construct(**values)

    def __iter__(self) -> Iterator[Observation]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to a list, and as changeable

    def __repr__(self) -> str:
        return f"Observations({len(self):,})"
