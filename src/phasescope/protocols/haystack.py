"""The text around a needle: the fixed words of a prompt, and lines of records and fillers between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..text.tokens import Tokenizer

Ints = npt.NDArray[np.int64]
Ids = tuple[int, ...]

FILLER_LINE = 8
"""Tokens in a filler line, on average."""
KEY = " {key}"


@dataclass(frozen=True)
class Frame:
    """The tokens of a prompt that are the same in every context.

    Attributes:
        head: what comes first: a chat template's beginning or a BOS, then the instruction.
        ask: the question up to the key.
        close: the question behind the key, then a chat template's end.
        colon, newline: between key and value, and at the end of a line.
        before, after: how many tokens of `head` and of `close` are not the user's text.
    """

    head: Ids
    ask: Ids
    close: Ids
    colon: int
    newline: int
    before: int
    after: int

    @classmethod
    def build(cls, tokenizer: Tokenizer, instruction: str, question: str, *, chat: bool) -> Self:
        """Take the tokens of the texts apart at the key.

        Raises:
            UsageError: for texts without what they need, or where the tokenizer has no chat template.
        """
        if not instruction.endswith("\n"):
            raise UsageError(
                f"the instruction {instruction!r} must end with a line break, as lines follow it"
            )
        ask, _, close = question.partition(KEY)
        if question.count(KEY) != 1:
            raise UsageError(f"the question {question!r} must hold '{{key}}' once, with a blank before it")
        before, after = list(tokenizer.start_ids), []
        if chat:
            # A reply that begins with thoughts begins with no value.
            ids, (first, last) = tokenizer.chat("x", thinking=False)
            before, after = ids[:first], ids[last:]
        return cls(
            head=(*before, *tokenizer.encode(instruction)),
            ask=tuple(tokenizer.encode(ask)),
            close=(*_behind(tokenizer, close), *after),
            colon=_single(tokenizer, ":"),
            newline=_single(tokenizer, "\n"),
            before=len(before),
            after=len(after),
        )

    def content(self, length: int) -> tuple[int, int]:
        """The span of the user's text in a prompt of so many tokens."""
        return self.before, length - self.after


@dataclass(frozen=True, eq=False)
class Lines:
    """Records in order, with filler lines between them, before their words are chosen.

    Attributes:
        start_P: index of each record's first token.
        end_F: index of each filler line's break.
        size: tokens of all lines together.
    """

    start_P: Ints
    end_F: Ints
    size: int

    @classmethod
    def draw(cls, pairs: int, record: int, fillers: int, rng: np.random.Generator) -> Self:
        """Put filler lines of `fillers` tokens in all, never of 1, at random places between the records."""
        filler_F = _filler_lines(fillers, rng)
        is_filler = rng.permutation(np.arange(pairs + len(filler_F)) < len(filler_F))
        size = np.full(len(is_filler), record)
        size[is_filler] = filler_F
        end = np.cumsum(size)
        return cls((end - size)[~is_filler], end[is_filler] - 1, int(size.sum()))

    def fill(self, record_PR: Ints, fillers: Ints, newline: int, rng: np.random.Generator) -> Ints:
        """The ids of all lines: records as given, fillers drawn independently and uniformly."""
        ids: Ints = rng.choice(fillers, size=self.size)
        ids[self.end_F] = newline
        ids[self.start_P[:, None] + np.arange(record_PR.shape[1])] = record_PR
        return ids


def _filler_lines(tokens: int, rng: np.random.Generator) -> Ints:
    """Lengths of filler lines, 2 or more, that add up: of equal ones, pairs give and take at random."""
    lines = min(1, tokens) if tokens < FILLER_LINE else tokens // FILLER_LINE
    if not lines:
        return np.zeros(0, dtype=np.int64)
    length_F = np.full(lines, tokens // lines)
    length_F[: tokens % lines] += 1
    half = lines // 2
    given = rng.integers(0, tokens // lines - 1, size=half)
    length_F[:half] += given
    length_F[half : 2 * half] -= given
    shuffled: Ints = rng.permutation(length_F)
    return shuffled


def _behind(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text as it stands behind a word."""
    word = tokenizer.encode("a")
    return tokenizer.encode("a" + text)[len(word) :]


def _single(tokenizer: Tokenizer, text: str) -> int:
    ids = _behind(tokenizer, text)
    if len(ids) != 1:
        raise UsageError(
            f"the tokenizer of {tokenizer.name} reads {text!r} as {len(ids)} tokens; one is needed"
        )
    return ids[0]
