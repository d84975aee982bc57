"""A prompt of text between two pads: cut at the user's marks, in a chat template or not, as text and as ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ..errors import UsageError
from .padding import Ids, ids_between
from .positions import token_at
from .prompts import Prompt
from .tokens import Tokenizer, conversation

Placement = Literal["front", "mark", "around"]
_EDGE = 64  # characters on either side of a pad that are read to find one that fits; all are read in the end


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where pads go in a prompt's text, and what is asked about.

    Attributes:
        placement: at the front, at a mark, or around what stands between two marks.
        mark, second_mark: what stands in a prompt where pads go.
        source_mark: what stands in front of what is asked about; None for the first token after the pad.
    """

    placement: Placement
    mark: str
    second_mark: str
    source_mark: str | None


@dataclass(frozen=True)
class Page:
    """A prompt of text between two pads, as text and as ids.

    Attributes:
        tokenizer: of the model.
        texts: before the first pad, after it, and after the second one, the template's text included.
        start_ids: what the tokenizer puts in front of every text.
        source_at: character of the source in the joined texts.
        chat, system: whether it stands in the chat template, and behind which system message.
        message: the three texts as the user wrote them.
    """

    tokenizer: Tokenizer
    texts: tuple[str, str, str]
    start_ids: Ids
    source_at: int
    chat: bool
    system: str | None
    message: tuple[str, str, str]

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, prompt: Prompt, places: Places, *, chat: bool, system: str | None
    ) -> Page:
        """The page of a prompt.

        Raises:
            UsageError: for marks that are not where they must be, or a template that changes the message.
        """
        message, source_at = _cut(prompt, places)
        head, middle, rest = message
        start_ids: Ids = () if chat else tokenizer.start_of(tokenizer.encode("".join(message)[:_EDGE]))
        if chat:
            tokenizer.chat("".join(message), system=system)  # refuses what it cannot do
            before, after = tokenizer.frame(system=system)
            head, source_at = before + head, source_at + len(before)
            middle, rest = (middle, rest + after) if rest else (middle + after, "")
        return cls(tokenizer, (head, middle, rest), start_ids, source_at, chat, system, message)

    @cached_property
    def ids(self) -> tuple[Ids, Ids, Ids]:
        """The ids of the three texts, each on its own."""
        head, middle, rest = (tuple(self.tokenizer.encode(text)) for text in self.texts)
        return head, middle, rest

    @property
    def parts(self) -> tuple[Ids, Ids, Ids]:
        """The ids of the three texts, what the tokenizer puts in front included."""
        return self.start_ids + self.ids[0], self.ids[1], self.ids[2]

    @property
    def source(self) -> int:
        """Index of the token that holds the source's first character, in the prompt without pads."""
        before, left = len(self.start_ids), self.source_at
        for text in self.texts:
            if left < len(text):
                index = token_at(self.tokenizer.encode_spans(text)[1], left)
                return before + (len(self.tokenizer.encode(text)) if index is None else index)
            before, left = before + len(self.tokenizer.encode(text)), left - len(text)
        raise UsageError(
            "the source mark stands at the very end of the prompt; put it before what is asked about"
        )

    def joined(self, texts: Sequence[str]) -> list[Ids | None]:
        """The ids of pads beside the nearest characters; where there are two places, equal in both."""
        places = [(self.texts[0][-_EDGE:], self.texts[1][:_EDGE])]
        if self.texts[2]:
            places.append((self.texts[1][-_EDGE:], self.texts[2][:_EDGE]))
        found = [ids_between(self.tokenizer, left, right, texts) for left, right in places]
        return [
            first if all(other == first for other in rest) else None
            for first, *rest in zip(*found, strict=True)
        ]

    def whole(self, texts: dict[int, str], lengths: Sequence[int], around: bool) -> bool:
        """Whether each padded prompt, read as one text, has the ids of its parts, and so many pads."""
        head, middle, rest = self.texts
        total = min(lengths) + max(lengths)
        pads = [(texts[length], texts[total - length] if around else "") for length in lengths]
        if self.chat and any(not self._kept(*pair) for pair in pads):
            return False
        read = self.tokenizer.encode_many([head + one + middle + two + rest for one, two in pads])
        first, second, third = map(list, self.ids)
        return all(
            ids[: len(first)] == first
            and ids[len(first) + length :][: len(second)] == second
            and ids[len(ids) - len(third) :] == third
            and len(ids) == len(first) + len(second) + len(third) + length + (total - length if around else 0)
            for length, ids in zip(lengths, read, strict=True)
        )

    def _kept(self, one: str, two: str) -> bool:
        """Whether the chat template leaves a padded message as it is; some strip blanks from its ends."""
        head, middle, rest = self.message
        shown = self.tokenizer.render(conversation(head + one + middle + two + rest, self.system))
        return shown == self.texts[0] + one + self.texts[1] + two + self.texts[2]

    def continuation(self, text: str) -> Ids:
        """The ids of a text after the prompt.

        Raises:
            UsageError: if the tokenizer joins it with the prompt's last token.
        """
        tail = (self.texts[2] or self.texts[1])[-_EDGE:]
        before, both = self.tokenizer.encode(tail), self.tokenizer.encode(tail + text)
        if both[: len(before)] != before or len(both) == len(before):
            raise UsageError(
                f"the tokenizer joins the prompt's end {tail[-12:]!r} with {text!r} to other tokens; end the prompt "
                "before the blank or letters that belong to the answer, and begin the answer with them"
            )
        return tuple(both[len(before) :])


def _cut(prompt: Prompt, places: Places) -> tuple[tuple[str, str, str], int]:
    """The user's text without marks, in three parts, and the character of the source in it."""
    text, marks = prompt.prompt, [places.mark, places.second_mark]
    used = {"front": 0, "mark": 1, "around": 2}[places.placement]
    wanted = [*marks[:used], *([places.source_mark] if places.source_mark is not None else [])]
    for mark in wanted:
        if not mark or text.count(mark) != 1:
            raise UsageError(
                f"prompt {prompt.name!r} has the mark {mark!r} {text.count(mark) if mark else 0} times; it must stand "
                "in it exactly once, or choose another mark or placement"
            )
    if not used and places.mark in text:
        raise UsageError(
            f"prompt {prompt.name!r} has the mark {places.mark!r}, but pads go to the front; choose placement mark, "
            "or another mark"
        )
    source = text.find(places.source_mark) if places.source_mark else None
    text = text.replace(places.source_mark, "") if places.source_mark else text
    cuts = [text.find(mark) for mark in marks[:used]]
    if cuts != sorted(cuts):
        raise UsageError(f"prompt {prompt.name!r} has {marks[1]!r} before {marks[0]!r}; put it after")
    pieces = [text]
    for mark in marks[:used]:
        head, _, rest = pieces.pop().partition(mark)
        pieces += [head, rest]
    head, middle, rest = [("", pieces[0], ""), (*pieces, ""), tuple(pieces)][used]
    if not middle or (used == 2 and not rest):
        raise UsageError(f"prompt {prompt.name!r} has no text after a mark; pads go before what is asked")
    if source is None:
        return (head, middle, rest), len(head)
    return (head, middle, rest), source - sum(
        len(mark) for mark, cut in zip(marks, cuts, strict=False) if cut < source
    )
