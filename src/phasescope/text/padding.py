"""Padding families: texts of exactly so many tokens that leave the tokens around them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, product

import numpy as np

from ..errors import UsageError
from .locate import Locator, Sample
from .tokens import Tokenizer

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
        closing: what stands after them, so that the next token stays apart.
    """

    units: tuple[str, ...]
    opening: str = ""
    closing: str = "\n"

    def texts(self, most: int) -> Iterator[str]:
        """The closing alone, then the opening with 0, 1, … `most` units and the closing."""
        yield self.closing
        for count in range(most + 1):
            yield self.opening + "".join(islice(cycle(self.units), count)) + self.closing


def _closed(units: tuple[str, ...], opening: str, *closings: str) -> tuple[Style, ...]:
    return tuple(Style(units, opening, closing) for closing in closings)


_NEUTRAL = (
    "the text below is the same as it was before and there is no need to look at this line which is here to fill a "
    "bit of space and says no more than that so please go on with what comes after it"
)

FAMILIES: dict[str, tuple[Style, ...]] = {
    "line": (
        *_closed((" =",), "=", "\n", ""),
        *_closed((" -",), "-", "\n", ""),
        *_closed(("=-",), "", "\n", ""),
        *_closed((" =",), "=", " end\n", ". ", " . "),
    ),
    "spaces": (
        *_closed((" ",), "", "", "\n"),
        *_closed((" \t",), "", "", "\n"),
        *_closed(("\t ",), "", "", "\n"),
        *_closed((" \u00a0",), "", "", "\n"),
    ),
    "comment": (
        *_closed((" filler",), "#", "\n"),
        *_closed((" note",), "#", "\n"),
        *_closed((" -",), "#", "\n"),
        *_closed((" -",), "//", "\n"),
    ),
    "blank": (
        *_closed(("\n",), "", ""),
        *_closed((" \n",), "", ""),
        *_closed(("\t\n",), "", ""),
        *_closed(("\n \n",), "", ""),
    ),
    "sentence": _closed(
        tuple(f" {word}" for word in _NEUTRAL.split()), "", "\n", ".\n", "\n\n", ".\n\n", ". ", ".", " "
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
        return _closed(units, "", "", "\n", " ")


def parse_families(given: Sequence[str]) -> tuple[Family, ...]:
    """Read families and give each a name of its own.

    Raises:
        UsageError: for none, one that is unknown, or one given twice.
    """
    if not given or len(set(given)) < len(given):
        raise UsageError(f"padding families are {list(given)}; give at least one, and each once")
    own = [text for text in given if text not in FAMILIES]
    return tuple(Family.parse(text, own.index(text) + 1 if text in own else 1) for text in given)


@dataclass(frozen=True, slots=True)
class Pads:
    """A family's pads, or why there are none.

    Attributes:
        texts, ids: by number of tokens.
        missing: the lengths that the best style lacks.
        uneven: whether a style had all lengths, but its pads differ in more than their length.
    """

    texts: dict[int, str]
    ids: dict[int, Ids]
    missing: tuple[int, ...] = ()
    uneven: bool = False

    @property
    def usable(self) -> bool:
        """Whether every length is there, and nothing but the length varies."""
        return not self.missing and not self.uneven


def exact_pads(styles: Sequence[Style], lengths: Sequence[int], joined: Joined) -> Pads:
    """Texts of exactly each number of tokens, all in the first style that has all of them.

    Of several texts of one length it is the shortest; the text of length 0 is empty. A style of one repeated
    unit must also be even: one token over and over between a fixed beginning and end. If long and short
    tokens, or two endings, took turns with L, the pad itself would have a period, and a model without a grid
    would follow it.

    Args:
        styles: in order of preference.
        lengths: numbers of tokens.
        joined: what ids a text has where it is to stand.
    """
    wanted = sorted({length for length in lengths if length})
    tried = [_in_style(style, wanted, joined) for style in styles[:1]]
    for style in styles[1:]:
        if tried[-1].usable:
            break
        tried.append(_in_style(style, wanted, joined))
    return min(tried, key=lambda pads: (not pads.usable, len(pads.missing)))


def _in_style(style: Style, wanted: Sequence[int], joined: Joined) -> Pads:
    """The pads of one style."""
    texts = style.texts(max(16, max(wanted, default=0) * ROOM // min(map(len, style.units))))
    found: dict[int, tuple[str, Ids]] = {0: ("", ())}
    missing = list(wanted)
    while missing and (some := list(islice(texts, TRIED))):
        for text, ids in zip(some, joined(some), strict=True):
            if ids is not None:
                found.setdefault(len(ids), (text, ids))
        missing = [length for length in wanted if length not in found]
    kept = {length: found[length] for length in (0, *wanted) if length in found}
    ids_by_length = {length: ids for length, (_, ids) in kept.items()}
    uneven = len(style.units) == 1 and not missing and not even(ids_by_length)
    return Pads({length: text for length, (text, _) in kept.items()}, ids_by_length, tuple(missing), uneven)


def even(ids: dict[int, Ids]) -> bool:
    """Whether pads are one token over and over between a beginning and an end that never change.

    Pads that are too short to hold beginning and end and one token between them are not looked at.
    """
    longest = ids[max(ids)]
    unit = max(set(longest), key=longest.count, default=-1)
    places = [index for index, token in enumerate(longest) if token == unit]
    if not places:
        return True
    first, last = longest[: places[0]], longest[places[-1] + 1 :]
    ends = len(first) + len(last)
    return all(pad == first + (unit,) * (n - ends) + last for n, pad in ids.items() if n > ends)


def ids_between(tokenizer: Tokenizer, left: str, right: str, texts: Sequence[str]) -> list[Ids | None]:
    """The ids that each text has between two others; None where it changes a token of theirs."""
    before, after = (tuple(tokenizer.encode(text)) for text in (left, right))
    inside: list[Ids | None] = []
    for ids in map(tuple, tokenizer.encode_many([left + text + right for text in texts])):
        last = len(ids) - len(after)
        whole = last >= len(before) and ids[: len(before)] == before and ids[last:] == after
        inside.append(ids[len(before) : last] if whole else None)
    return inside


WORDS = ("pad", "and", "the", ".")
ENDS = ("\n", "", " ", "\n\n", ". ")
FORMS = tuple((word, end, less) for word, end, less in product(WORDS, ENDS, (1, 0, 2)))
"""Pads that are tried in turn: a word that is repeated, what stands at the end, and how many tokens that
end is thought to take. A byte-level tokenizer needs a line end in front of a letter, and nothing in front
of a blank; a tokenizer that marks the beginning of words needs a blank."""
FAILED = -1
"""The form of a sample for which no pad left the prompt's tokens alone."""


def pad_text(tokens: int, form: int) -> str | None:
    """The pad of a form, meant to be so many tokens; None where the form has none that short."""
    word, end, less = FORMS[form]
    count = tokens - less
    return " ".join([word] * count) + end if count > 0 or (count == 0 and end) else None


class FrontPadder:
    """Finds for each of many samples a pad in front, proven by encoding prompt and pad together.

    Where `exact_pads` looks for one style that has all lengths, each sample here needs one length alone, and the form
    that fitted another sample is tried first.
    """

    def __init__(self, locator: Locator) -> None:
        self.locator = locator
        self._likely: list[int] = []

    def fit(self, samples: Sequence[Sample], tokens: Sequence[int]) -> list[int]:
        """The form of each sample's pad, or `FAILED`.

        A form fits when the text with it has the ids of the text without it, with just so many more in one
        place: ids[:a] + pad + ids[a:].

        Args:
            samples: with prompts that are texts; where a conversation begins is not known.
            tokens: how many each sample needs, at least 1.
        """
        forms = [FAILED] * len(samples)
        texts = [self.locator.text(sample) if isinstance(sample.prompt, str) else None for sample in samples]
        open_ = [index for index, text in enumerate(texts) if text is not None]
        plain = dict(zip(open_, self._encoded([texts[index] or "" for index in open_]), strict=True))
        for form in [*self._likely, *(f for f in range(len(FORMS)) if f not in self._likely)]:
            if not open_:
                break
            tried = [
                (i, text) for i in open_ if (text := self._with(samples[i], tokens[i], form)) is not None
            ]
            for (index, _), ids in zip(tried, self._encoded([text for _, text in tried]), strict=True):
                if inserted(plain[index], ids, tokens[index]):
                    forms[index] = form
                    # What fitted once is tried first: another prompt of the benchmark begins alike.
                    if form not in self._likely:
                        self._likely.append(form)
            open_ = [index for index in open_ if forms[index] == FAILED]
        return forms

    def _with(self, sample: Sample, tokens: int, form: int) -> str | None:
        pad = pad_text(tokens, form)
        return None if pad is None else self.locator.text(sample._replace(prompt=f"{pad}{sample.prompt}"))

    def _encoded(self, texts: Sequence[str]) -> list[np.ndarray]:
        assert self.locator.tokenizer is not None
        return [np.array(ids, dtype=np.int64) for ids in self.locator.tokenizer.encode_many(texts)]


def inserted(before: np.ndarray, after: np.ndarray, tokens: int) -> bool:
    """Whether `after` is `before` with so many more ids in one place."""
    if len(after) != len(before) + tokens:
        return False
    differ = np.flatnonzero(before != after[: len(before)])
    first = int(differ[0]) if len(differ) else len(before)
    return bool(np.array_equal(after[first + tokens :], before[first:]))
