"""Which token holds a character: the one place where characters become token positions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from .tokens import Tokenizer

Span = tuple[int, int]
"""The characters that a token stands for: the first, and one past the last."""


def token_at(spans: Sequence[Span], character: int) -> int | None:
    """The first token that holds any byte of a character; None where no token does.

    Byte-level tokenizers spell a character beyond ASCII with several tokens, which all have its span: its position
    is that of the first. A blank that a tokenizer leaves out of its spans is found in the token after it. Tokens
    without characters hold none.

    Args:
        spans: of each token, in order.
        character: its index in the text.
    """
    index = bisect_right(spans, character, key=lambda span: span[1])
    while index < len(spans) and spans[index][0] == spans[index][1]:
        index += 1
    return index if index < len(spans) else None


@dataclass(frozen=True)
class TokenizedText:
    """A whole text as the model reads it; for a chat, the text that its template gives.

    Attributes:
        start_ids: what the tokenizer puts in front; nothing where the text begins with it already.
        ids: the text's own tokens.
        spans: the characters of each of them.
    """

    start_ids: tuple[int, ...]
    ids: tuple[int, ...]
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, text: str, tokenizer: Tokenizer) -> Self:
        """Read a text."""
        ids, spans = tokenizer.encode_spans(text)
        return cls(tokenizer.start_of(ids), tuple(ids), tuple(spans))

    def __len__(self) -> int:
        return len(self.start_ids) + len(self.ids)

    def position(self, character: int) -> int | None:
        """Index of the first token that holds any byte of a character, what stands in front included."""
        index = token_at(self.spans, character)
        return None if index is None else len(self.start_ids) + index

    def begins(self, character: int) -> bool:
        """Whether a token begins at a character, so that something can be put in front of it."""
        index = token_at(self.spans, character)
        return index is not None and self.spans[index][0] == character
