"""Models that a fake server pretends to run: their next token is known, because we put it there."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Protocol

from ...backends import Planted
from ...records import Trial

RARE = -30.0
"""Log-probability of every token that a model does not speak of."""


class FakeModel(Protocol):
    """What a fake server asks of its model."""

    def next_token(self, prompt_ids: Sequence[int]) -> dict[int, float]:
        """Log-probabilities of the likeliest next tokens."""
        ...


class Hashed:
    """Chooses by a hash of the whole prompt among ids from 0 to `size` − 1."""

    def __init__(self, size: int) -> None:
        self.size = size

    def next_token(self, prompt_ids: Sequence[int]) -> dict[int, float]:
        """One token with −0.1, its neighbour with −3."""
        digest = hashlib.blake2b(repr(tuple(prompt_ids)).encode(), digest_size=8).digest()
        first = int.from_bytes(digest, "little") % self.size
        return {first: -0.1, (first + 1) % self.size: -3.0}


class PlantedModel:
    """Key-value retrieval with a planted phase curve, read from nothing but the prompt.

    A record is a key and the value behind it; the question is the last token. Where block, cluster and
    layout have no effect, the replies are those of the `Planted` backend, bit by bit.

    Args:
        planted: the curve.
    """

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self._keys = frozenset(planted.ids.keys)
        self._values = frozenset(planted.ids.values)
        self._otherwise = Hashed(min(planted.ids.values) + 1)

    def next_token(self, prompt_ids: Sequence[int]) -> dict[int, float]:
        """The right value and one rival; anything for a prompt that is no question about a record."""
        ids = tuple(prompt_ids)
        records = {
            key: (value, position)
            for position, (key, value) in enumerate(itertools.pairwise(ids))
            if key in self._keys and value in self._values
        }
        if not ids or ids[-1] not in records:
            return self._otherwise.next_token(ids)
        value, position = records[ids[-1]]
        candidates = tuple(value for value, _ in records.values())
        context = hashlib.blake2b(repr(sorted(records)).encode(), digest_size=8).hexdigest()
        return self.answer(
            Trial(ids, (value,), candidates, position, f"{context}/{ids[-1]}", context, position)
        )

    def answer(self, trial: Trial) -> dict[int, float]:
        """The log-probabilities of the right value and its rival."""
        (reply,) = self._planted.answer([trial])
        logprobs = zip(trial.candidate_ids, reply.candidate_logprobs or (), strict=True)
        return {token: logprob for token, logprob in logprobs if logprob > RARE}
