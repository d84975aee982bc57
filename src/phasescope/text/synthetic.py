"""Synthetic key-value records: the vocabulary and the draws that training and protocols share."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from ..errors import UsageError
from ..records import Record

Ids = npt.NDArray[np.int64]


class RetrievalVocabulary(Record):
    """Which token ids are filler, keys and values.

    The three sets share no token, or keys and values are one set of names: place and context alone then tell them
    apart, and one context uses each name once.

    Attributes:
        fillers: ids that pad a context and mean nothing.
        keys: ids that name a record.
        values: ids that a record holds.
    """

    fillers: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        every = self.every
        if (
            not (self.fillers and self.keys and self.values)
            or len(set(every)) != len(every)
            or min(every) < 0
        ):
            raise ValueError(
                "fillers, keys and values must be non-empty sets of ids that share no token (keys and values may be "
                "the same ids in the same order)"
            )
        if not self.pairs:
            raise ValueError("keys and values are one id; a record needs two")
        return self

    @classmethod
    def contiguous(cls, fillers: int, keys: int, values: int, first: int = 0) -> Self:
        """From `first` on, the first ids are filler, the next keys, the last values."""
        ids = range(first, first + fillers + keys + values)
        return cls(
            fillers=tuple(ids[:fillers]),
            keys=tuple(ids[fillers : fillers + keys]),
            values=tuple(ids[fillers + keys :]),
        )

    def shared(self) -> RetrievalVocabulary:
        """The same ids, with every key a value too, and every value a key."""
        if self.shares:
            return self
        names = (*self.keys, *self.values)
        return RetrievalVocabulary(fillers=self.fillers, keys=names, values=names)

    @property
    def shares(self) -> bool:
        """Whether keys and values are one set of names."""
        return self.keys == self.values

    @property
    def every(self) -> tuple[int, ...]:
        """All ids of the three sets, each once."""
        return (*self.fillers, *self.keys, *(() if self.shares else self.values))

    @property
    def pairs(self) -> int:
        """The most records that one context can hold without repeating a key or a value."""
        return len(self.keys) // 2 if self.shares else min(len(self.keys), len(self.values))


def draw_pairs(vocabulary: RetrievalVocabulary, pairs: int, rng: np.random.Generator) -> Ids:
    """Draw records without repeating a key or a value, or any name where keys and values are one set.

    Returns:
        ids of shape [pairs, 2]: key, value.

    Raises:
        UsageError: if the vocabulary has too few keys or values.
    """
    if not 1 <= pairs <= vocabulary.pairs:
        raise UsageError(f"{pairs} pairs asked for; this vocabulary allows 1 to {vocabulary.pairs}")
    keys = rng.permutation(np.asarray(vocabulary.keys, dtype=np.int64))
    if vocabulary.shares:
        return np.stack([keys[:pairs], keys[pairs : 2 * pairs]], axis=1)
    keys = keys[:pairs]
    values = rng.permutation(np.asarray(vocabulary.values, dtype=np.int64))[:pairs]
    return np.stack([keys, values], axis=1)


def draw_fillers(vocabulary: RetrievalVocabulary, count: int, rng: np.random.Generator) -> Ids:
    """Draw `count` filler ids, independently and uniformly."""
    return rng.choice(np.asarray(vocabulary.fillers, dtype=np.int64), size=count)
