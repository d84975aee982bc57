"""A token's log-probability in an answer, under whichever name the server gives the token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...text.tokens import Tokenizer
from .replies import Position


class Lookup:
    """Finds a token's log-probability under whichever name the server gives it.

    A text is a token's name only if it is encoded to that token and nothing else; without a tokenizer
    only ids are names.

    Args:
        tokenizer: of the served model.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str | None] = {}

    def find(self, position: Position, token: int) -> float | None:
        """The token's log-probability, if the answer holds it."""
        for key in (token, self._name(token)):
            if key is not None and key in position.top:
                return position.top[key]
            if key is not None and key == position.key:
                return position.logprob
        return None

    def find_all(self, position: Position, tokens: Iterable[int]) -> tuple[float, ...] | None:
        """Those of all tokens, or nothing."""
        found = [self.find(position, token) for token in tokens]
        whole = tuple(logprob for logprob in found if logprob is not None)
        return whole if found and len(whole) == len(found) else None

    def each(self, positions: Sequence[Position], tokens: Sequence[int]) -> list[float] | None:
        """The log-probability of each token at its own position, or nothing."""
        found = [self.find(*pair) for pair in zip(positions, tokens, strict=False)]
        whole = [logprob for logprob in found if logprob is not None]
        return whole if len(whole) == len(tokens) else None

    def _name(self, token: int) -> str | None:
        if self._tokenizer is None:
            return None
        if token not in self._names:
            text = self._tokenizer.decode([token])
            self._names[token] = text if text and self._tokenizer.encode(text) == [token] else None
        return self._names[token]
