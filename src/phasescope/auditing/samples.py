"""What an audit reads of a benchmark: its samples, and the columns that they stand in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError
from ..text.locate import Message as Message
from ..text.locate import Sample as Sample

ABSENT = object()
"""What `at_path` gives where a record has no such path."""


@dataclass(frozen=True)
class Columns:
    """Where the parts of a sample stand in a record: dotted paths, the first that is there counts.

    Attributes:
        prompt, needle, position, score: candidates, best first.
        named: which of them the user named; a named one has to be there.
    """

    prompt: tuple[str, ...] = ()
    needle: tuple[str, ...] = ()
    position: tuple[str, ...] = ()
    score: tuple[str, ...] = ()
    named: frozenset[str] = field(default_factory=frozenset)

    def naming(self, **names: str | None) -> Columns:
        """The same with the columns that a user names in place of the candidates."""
        given = {part: (name,) for part, name in names.items() if name is not None}
        parts = {part: getattr(self, part) for part in PARTS} | given
        return Columns(**parts, named=frozenset(given))

    def resolved(self, record: Mapping[str, Any], where: str) -> Columns:
        """The same with the candidates that this record has, at most one each.

        Raises:
            UsageError: if a column that the user named is not there.
        """
        found: dict[str, tuple[str, ...]] = {}
        for part in PARTS:
            candidates: tuple[str, ...] = getattr(self, part)
            there = [path for path in candidates if at_path(record, path) is not ABSENT]
            if part in self.named and not there:
                raise UsageError(
                    f"{where}: no column {candidates[0]!r}; there are {_listed(record)}; name one with --{part}"
                )
            found[part] = tuple(there[:1])
        return Columns(**found, named=self.named)


PARTS = ("prompt", "needle", "position", "score")


def at_path(record: Any, path: str) -> Any:
    """The value at a dotted path through dictionaries and lists, or `ABSENT`.

    A key that has dots itself is found as well, as long as it is the whole path.
    """
    if isinstance(record, Mapping) and path in record:
        return record[path]
    value = record
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdigit():
            if int(part) >= len(value):
                return ABSENT
            value = value[int(part)]
        else:
            return ABSENT
    return value


def with_path(record: Any, path: str, value: Any) -> Any:
    """A copy of a record with another value at a path that it has."""
    if isinstance(record, Mapping) and path in record:
        return {**record, path: value}
    head, _, rest = path.partition(".")
    if isinstance(record, Mapping):
        return {**record, head: with_path(record[head], rest, value)}
    inside = list(record)
    inside[int(head)] = with_path(inside[int(head)], rest, value) if rest else value
    return inside


def _listed(record: Mapping[str, Any]) -> str:
    names = [repr(str(name)) for name in record][:12]
    return ", ".join(names) + (", …" if len(record) > len(names) else "") if names else "none"


def position_of(value: Any, where: str, column: str) -> int | None:
    """A token index from what a file holds; None for nothing.

    Raises:
        UsageError: for anything that is no whole number from 0.
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    number = value
    if isinstance(value, str):
        try:
            number = float(value) if not value.strip().isdigit() else int(value)
        except ValueError:
            number = None
    # A bool is an int to Python; a token index it is not.
    whole = isinstance(number, int | float) and not isinstance(value, bool) and number == number // 1
    if not whole or not 0 <= number < 2**53:
        raise UsageError(
            f"{where}: {column} is {short(value)}; a token position is a whole number from 0; correct the line "
            "or name another column with --position"
        )
    return int(number)


def score_of(value: Any, where: str, column: str) -> float | None:
    """A score from 0 to 1 from what a file holds; None for nothing.

    Raises:
        UsageError: for anything else.
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    number = WORDS.get(value.strip().lower(), value) if isinstance(value, str) else value
    try:
        score = float(number)
    except (TypeError, ValueError, OverflowError):
        score = math.nan
    if not 0 <= score <= 1:
        raise UsageError(
            f"{where}: {column} is {short(value)}; a score is 0 to 1, true or false; correct the line or name "
            "another column with --score"
        )
    return score


WORDS = {"true": 1.0, "false": 0.0, "c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0}
"""Scores in words; the letters are inspect's correct, incorrect, partial and no answer."""


def text_of(value: Any) -> str | None:
    """A text from what a file holds: the first of several; None for nothing."""
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    if value is None or isinstance(value, dict):
        return None
    return str(value) or None


def short(value: Any, limit: int = 60) -> str:
    """A value as an error message shows it."""
    words = repr(value)
    return words if len(words) <= limit else words[: limit - 1] + "…"
