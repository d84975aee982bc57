"""What is checked: an engine that reads the same tokens in different ways, and how two readings compare."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import PhasescopeError

Ids = tuple[int, ...]
Logprobs = npt.NDArray[np.floating] | Mapping[Any, float]
"""Natural log-probabilities of the next token: of the whole vocabulary, or of a server's most probable tokens by id
or text."""


class NotOfferedError(PhasescopeError):
    """A subject does not offer a way of reading; the text says what would decide it.

    Args:
        reason: why it cannot be asked, and what access could.
        absent: the engine has no such feature, so that it cannot be at fault there. Otherwise the feature
            may be at work where it cannot be seen.
    """

    def __init__(self, reason: str, *, absent: bool = False) -> None:
        super().__init__(reason)
        self.absent = absent


@dataclass(frozen=True, slots=True)
class Continuation:
    """What followed a prompt: for each token of the greedy continuation, from what it was chosen.

    Attributes:
        rows: log-probabilities, one row per token of the continuation.
        tokens: the tokens that were chosen, one per row; by id, or as a server spells them.
        failed: what the engine raised instead of an answer, in one line; empty where it answered.
    """

    rows: tuple[Logprobs, ...]
    tokens: tuple[int | str, ...]
    failed: str = ""


class EngineUnderTest(ABC):
    """An engine under check. Ways of reading that it does not offer raise `NotOfferedError`.

    Every way is given the whole prompt and returns the reading of its greedy continuation by `new` tokens.
    A correct engine returns the same reading for all of them.

    Attributes:
        name: what a report calls it.
        ids: token ids that prompts may be made of.
        eps: relative rounding of its coarsest number format.
        longest: the longest prompt that it can take.
        selects: whether its model chooses entries, blocks or experts by scores, so that equal scores may
            matter; None if that is not known.
        equal_scores: how often, so far, the model had to choose among equal scores within `settled`; 0 where that
            cannot be seen.
    """

    name: str
    ids: Ids
    eps: float
    longest: int
    selects: bool | None = None
    equal_scores: int = 0

    @abstractmethod
    def whole(self, prompt: Ids, new: int) -> Continuation:
        """Read the prompt in one piece, with nothing kept from before."""

    def inside(self, prompt: Ids, start: int) -> Sequence[Continuation]:
        """Read the prompt in one piece and return what follows each token from `start` on (one row each)."""
        raise NotOfferedError("needs log-probabilities of prompt tokens (vLLM: echo)")

    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        """Read the prompt in pieces that end at `cuts`, and a last one."""
        raise NotOfferedError("needs control over where a prompt is cut")

    def token_by_token(self, prompt: Ids, start: int, new: int) -> Continuation:
        """Read `start` tokens in one piece and the others one by one, as in decoding."""
        return self.in_parts(prompt, range(start, len(prompt)), new)

    def in_batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        """Read prompts together; shorter ones are padded on the left where the engine pads."""
        raise NotOfferedError("needs several prompts in one batch")

    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Read another prompt that begins with the same `cut` tokens, then this one from what was kept."""
        raise NotOfferedError("needs control over the prefix cache")

    def restored(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Read `cut` tokens, save, read other tokens, restore what was saved and read on."""
        raise NotOfferedError("needs to save and restore the engine's state")

    def cropped(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Read `cut` tokens and then others, take the others back, and read on."""
        raise NotOfferedError("needs to take tokens back, as a rejected draft is")

    def reordered(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Read `cut` tokens, go on in three rows of which one reads the prompt, and keep that row."""
        raise NotOfferedError("needs to reorder the rows of a batch, as beam search does")

    def speculative(self, prompt: Ids, new: int) -> Continuation:
        """Continue the prompt by speculative decoding."""
        raise NotOfferedError("needs speculative decoding that a request can switch on and off")

    def noisy(self, prompt: Ids, new: int, rng: np.random.Generator) -> Continuation:
        """As `whole`, with a random rounding error after every layer."""
        raise NotOfferedError("needs the model's layers")

    def settled(self) -> AbstractContextManager[None]:
        """Within it, equal scores are chosen in one order, however many others stand beside them."""
        raise NotOfferedError("needs the scores that the model chooses by")

    def facts(self) -> dict[str, Any]:
        """What was checked, for the record."""
        return {"subject": self.name}


def gap(first: Continuation, second: Continuation) -> float:
    """The largest difference of log-probabilities, up to the first token that was chosen differently.

    Behind a different token the two continuations no longer answer the same question. An engine that
    raised instead of answering is infinitely far from one that answered.
    """
    if first.failed or second.failed:
        return 0.0 if first.failed == second.failed else float("inf")
    largest = 0.0
    for one, other, a, b in zip(first.rows, second.rows, first.tokens, second.tokens, strict=False):
        largest = max(largest, row_gap(one, other))
        if a != b:
            break
    return largest


def row_gap(one: Logprobs, other: Logprobs) -> float:
    """The largest difference of log-probabilities of one token.

    Of lists of the most probable tokens, a token that only one list names has in the other at most the
    least that is listed there.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return _listed_gap(one, other)
    a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if a.shape != b.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        gaps = np.where(a == b, 0.0, np.abs(a - b))  # -inf − -inf is no number
    return float(np.nan_to_num(gaps, nan=np.inf, posinf=np.inf).max(initial=0.0))


def size(row: Logprobs) -> float:
    """The largest log-probability by its amount; rounding goes by it."""
    values = np.asarray(list(row.values()) if isinstance(row, Mapping) else row, dtype=np.float64)
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _listed_gap(one: Mapping[Any, float], other: Mapping[Any, float]) -> float:
    if not one or not other:
        return 0.0 if not one and not other else float("inf")
    shared = [abs(one[token] - other[token]) for token in one.keys() & other.keys()]
    alone = [
        max(0.0, here[token] - min(there.values()))
        for here, there in ((one, other), (other, one))
        for token in here.keys() - there.keys()
    ]
    return max([*shared, *alone])
