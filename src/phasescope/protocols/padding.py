"""Padding families: texts of exactly so many tokens that leave the tokens around them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from ..errors import UsageError
from ..tokens import Tokenizer

Ids = tuple[int, ...]
Joined = Callable[[Sequence[str]], list[Ids | None]]
"""The ids that each text has between its neighbours; None where it changes a token of theirs."""

ROOM = 8
"""Characters per token up to which a decoration may grow: longer runs merge, and nobody writes them."""
TRIED = 64
"""Texts that are read at a time, the shortest first."""


@dataclass(frozen=True, slots=True)
class Style:
    """One way to write a padding of any size: opening, units in turn, closing.

    Attributes:
        units: what is repeated, in turn; every unit adds about a token.
        opening: what stands before them.
        closings: what may stand after them, in order of preference, so that the next token stays apart.
    """

    units: tuple[str, ...]
    opening: str = ""
    closings: tuple[str, ...] = ("\n",)

    def texts(self, most: int) -> Iterator[str]:
        """A closing alone, then the opening with 0, 1, … `most` units, each with every closing."""
        yield from self.closings
        for count in range(most + 1):
            middle = "".join(islice(cycle(self.units), count))
            for closing in self.closings:
                yield self.opening + middle + closing


_NEUTRAL = (
    "the text below is the same as it was before and there is no need to look at this line which is here to fill a "
    "bit of space and says no more than that so please go on with what comes after it"
)

FAMILIES: dict[str, tuple[Style, ...]] = {
    "line": (
        Style((" =",), "=", ("\n", "")),
        Style((" -",), "-", ("\n", "")),
        Style(("=",)),
        Style(("=-",)),
        Style((" =",), "=", (" end\n", ". ", " . ")),
    ),
    "spaces": (
        Style((" ",), closings=("", "\n")),
        Style((" \t",), closings=("", "\n")),
        Style(("\t ",), closings=("", "\n")),
        Style((" \u00a0",), closings=("", "\n")),
    ),
    "comment": (
        Style((" filler",), "#"),
        Style((" note",), "#"),
        Style((" -",), "#"),
        Style((" -",), "//"),
    ),
    "blank": (
        Style(("\n",), closings=("",)),
        Style((" \n",), closings=("",)),
        Style(("\t\n",), closings=("",)),
        Style(("\n \n",), closings=("",)),
    ),
    "sentence": (
        Style(
            tuple(f" {word}" for word in _NEUTRAL.split()),
            closings=("\n", ".\n", "\n\n", ".\n\n", ". ", ".", " "),
        ),
    ),
}
"""Families by name: the styles in which each may be written, in order of preference."""

OWN_TEXT, OWN_IDS = "text:", "ids:"
"""How a family of the user's own begins: a text that is repeated, or token ids that are."""


@dataclass(frozen=True)
class Family:
    """A family as a user names it: one of `FAMILIES`, `text:` and a text, or `ids:` and token ids.

    Attributes:
        name: what a report calls it.
        given: as the user wrote it.
        ids: for `ids:`, what is repeated.

    Raises:
        UsageError: for a name that is none of these.
    """

    name: str
    given: str
    ids: Ids = ()

    @classmethod
    def parse(cls, given: str, own: int = 1) -> Family:
        """Read a family; the `own`-th of the user's own is named by that number."""
        if given in FAMILIES:
            return cls(given, given)
        if given.startswith(OWN_TEXT) and len(given) > len(OWN_TEXT):
            return cls(f"text {own}", given)
        ids = given.removeprefix(OWN_IDS).split(",")
        if given.startswith(OWN_IDS) and all(part.strip().isdecimal() for part in ids):
            return cls(f"ids {own}", given, tuple(map(int, ids)))
        raise UsageError(
            f"unknown padding family {given!r}; give one of {', '.join(FAMILIES)}, text:YOUR TEXT, or ids:1,2,3"
        )

    def styles(self, tokenizer: Tokenizer) -> tuple[Style, ...]:
        """The styles to try; a text of the user's own is cut between its tokens."""
        if self.given in FAMILIES:
            return FAMILIES[self.given]
        text = self.given.removeprefix(OWN_TEXT)
        units = tuple(text[first:last] for first, last in tokenizer.encode_spans(text)[1])
        return tuple(Style(units, closings=(closing,)) for closing in ("", "\n", " "))


def parse_families(given: Sequence[str]) -> tuple[Family, ...]:
    """Read families and give each a name of its own.

    Raises:
        UsageError: for none, one that is unknown, or one given twice.
    """
    if not given or len(set(given)) < len(given):
        raise UsageError(f"padding families are {list(given)}; give at least one, and each once")
    own = [text for text in given if text not in FAMILIES]
    return tuple(Family.parse(text, own.index(text) + 1 if text in own else 1) for text in given)


def exact_pads(
    styles: Sequence[Style], lengths: Sequence[int], joined: Joined
) -> tuple[dict[int, str], list[int]]:
    """Texts of exactly each number of tokens, all in the first style that has all of them.

    Args:
        styles: in order of preference.
        lengths: numbers of tokens.
        joined: what ids a text has where it is to stand.

    Returns:
        text by length, and the lengths that the best style lacks: none where the family can be used. Of
        several texts of one length it is the shortest. The text of length 0 is empty.
    """
    asked = sorted({length for length in lengths if length})
    best: tuple[dict[int, str], list[int]] = ({0: ""}, asked)
    most = max(asked, default=0)
    for style in styles:
        texts = style.texts(max(16, most * ROOM // min(map(len, style.units))))
        found: dict[int, str] = {0: ""}
        missing = asked
        while missing and (some := list(islice(texts, TRIED))):
            for text, ids in zip(some, joined(some), strict=True):
                if ids is not None:
                    found.setdefault(len(ids), text)
            missing = [length for length in asked if length not in found]
        if len(missing) < len(best[1]):
            best = ({length: found[length] for length in {0, *asked} if length in found}, missing)
        if not missing:
            break
    return best


def ids_between(tokenizer: Tokenizer, left: str, right: str, texts: Sequence[str]) -> list[Ids | None]:
    """The ids that each text has between two others; None where it changes a token of theirs."""
    before, after = (tuple(tokenizer.encode(text)) for text in (left, right))
    inside: list[Ids | None] = []
    for ids in map(tuple, tokenizer.encode_many([left + text + right for text in texts])):
        last = len(ids) - len(after)
        whole = last >= len(before) and ids[: len(before)] == before and ids[last:] == after
        inside.append(ids[len(before) : last] if whole else None)
    return inside
