"""Packing and warning on real text: through a tokenizer and its chat template, exact on token ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..errors import UsageError
from ..statistics.profile import Profile
from ..text.padding import FAMILIES, Family, exact_pads, ids_between, parse_families
from ..text.positions import TokenizedText
from ..text.tokens import Tokenizer
from .pack import Passage, pack

EDGE = 64  # characters on either side of a pad that are read to find one that fits; all are read in the end


@dataclass(frozen=True, slots=True)
class Fact:
    """A marked fact of a prompt.

    Attributes:
        text: how it is marked.
        position: index of its first token in what the model reads.
        phase: that position's phase.
        accuracy: what the profile expects there.
        strong: whether that is within the tolerance of the best phase.
        pads: the fewest tokens in front of it that bring it to a strong phase.
    """

    text: str
    position: int
    phase: int
    accuracy: float
    strong: bool
    pads: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A prompt with neutral tokens in it.

    Attributes:
        text: the prompt as the model reads it, its chat template's text included.
        pads: what was put in, by the character of the text without pads in front of which it stands.
        pad_tokens: how many tokens each of them has.
        before: the facts without pads.
        after: the facts with them, as read back from the ids of the whole text.
    """

    text: str
    pads: dict[int, str]
    pad_tokens: dict[int, int]
    before: tuple[Fact, ...]
    after: tuple[Fact, ...]

    @property
    def added(self) -> int:
        """Neutral tokens in all."""
        return sum(self.pad_tokens.values())


def warn(text: str, marks: Sequence[str], profile: Profile, tokenizer: Tokenizer) -> tuple[Fact, ...]:
    """Say on which phase each marked fact of a prompt stands, and how many pads would move it.

    Args:
        text: the prompt as the model reads it; for a chat, `tokenizer.render(messages)`.
        marks: the facts' texts, each of which occurs once.
        profile: of the model.
        tokenizer: of the model. What it puts in front of every text is counted, unless the text has it.

    Raises:
        UsageError: for a mark that does not occur, or occurs twice.
    """
    return _facts(TokenizedText.of(text, tokenizer), _found(text, marks), marks, profile)


def pack_text(
    text: str,
    marks: Sequence[str],
    profile: Profile,
    tokenizer: Tokenizer,
    *,
    found: Sequence[int] | None = None,
    places: Sequence[int] | None = None,
    limit: int | None = None,
    families: Sequence[str] = tuple(FAMILIES),
) -> Packed:
    """Put the fewest neutral tokens into a prompt so that its marked facts stand on strong phases.

    Args:
        text: the prompt as the model reads it.
        marks: the facts' texts, each of which occurs once unless `found` says where it begins.
        profile: of the model; one without a phase effect leaves the prompt as it is.
        tokenizer: of the model.
        found: first character of each fact; by default where its mark occurs.
        places: characters in front of which pads may stand; by default where the lines begin that hold a
            mark. A place inside a token is skipped.
        limit: the most tokens to add in all.
        families: kinds of neutral text to try, in order.

    Returns:
        the padded prompt, with every fact's position as read from the ids of the whole new text.

    Raises:
        UsageError: for a mark that does not occur once, or if no neutral text of the needed numbers of tokens
            leaves the tokens around it as they are.
    """
    if found is None:
        found = _found(text, marks)
    if places is None:
        places = [text.rfind("\n", 0, at) + 1 for at in found]
    kinds = parse_families(families)
    read = TokenizedText.of(text, tokenizer)
    before = _facts(read, found, marks, profile)
    cuts = [cut for cut in sorted(set(places)) if read.begins(cut)]
    wanted = _wanted(read, cuts, found, profile, limit)
    if not wanted:
        return Packed(text, {}, {}, before, before)
    for family in kinds:
        pads = _texts(text, wanted, family, tokenizer)
        if pads is None:
            continue
        padded = _inserted(text, pads)
        again = TokenizedText.of(padded, tokenizer)
        moved = [at + sum(len(pad) for cut, pad in pads.items() if cut <= at) for at in found]
        planned = [_token(read, at) + sum(n for cut, n in wanted.items() if cut <= at) for at in found]
        if [_token(again, at) for at in moved] == planned and len(again) == len(read) + sum(wanted.values()):
            return Packed(padded, pads, wanted, before, _facts(again, moved, marks, profile))
    raise UsageError(
        f"no neutral text of exactly {', '.join(map(str, sorted(set(wanted.values()))))} tokens fits in front of "
        f"these lines under the tokenizer of {tokenizer.name}; tried {', '.join(families)}; give another text with "
        "text:YOUR TEXT"
    )


def pack_messages(
    messages: Sequence[Mapping[str, str]],
    marks: Sequence[str],
    profile: Profile,
    tokenizer: Tokenizer,
    *,
    limit: int | None = None,
    families: Sequence[str] = tuple(FAMILIES),
) -> tuple[list[dict[str, str]], Packed]:
    """`pack_text` for a chat: the same messages with pads in their contents, in the places of the old ones.

    Args:
        messages: role and content each, as a chat endpoint takes them.
        marks: facts, each of which occurs once in the whole conversation.
        profile: of the model.
        tokenizer: of the model, with its chat template; the template's own tokens are counted.
        limit: the most tokens to add in all.
        families: kinds of neutral text to try, in order.

    Raises:
        UsageError: as `pack_text`, and if the template changes a message.
    """
    plain = [dict(message) for message in messages]
    text = tokenizer.render(plain)
    starts = list(_content_starts(text, plain, tokenizer.name))
    places = []
    for at in _found(text, marks):
        start = starts[max(0, bisect_right(starts, at) - 1)]
        places.append(max(start, text.rfind("\n", 0, at) + 1))
    packed = pack_text(text, marks, profile, tokenizer, places=places, limit=limit, families=families)
    for message, start in zip(plain, starts, strict=True):
        own = {
            cut - start: pad
            for cut, pad in packed.pads.items()
            if start <= cut < start + len(message["content"])
        }
        message["content"] = _inserted(message["content"], own)
    if tokenizer.render(plain) != packed.text:
        raise UsageError(
            f"the chat template of {tokenizer.name} changes a padded message; try another padding"
        )
    return plain, packed


def _found(text: str, marks: Sequence[str]) -> list[int]:
    """Where each mark begins."""
    if not marks:
        raise UsageError("no fact is marked; name the text of at least one")
    for mark in marks:
        count = text.count(mark) if mark else 0
        if count != 1:
            raise UsageError(f"the mark {mark!r} occurs {count} times; mark a text that occurs once")
    return [text.index(mark) for mark in marks]


def _token(read: TokenizedText, at: int) -> int:
    """The position of the token that holds a character.

    Raises:
        UsageError: if no token does, as of blanks at the very end.
    """
    position = read.position(at)
    if position is None:
        raise UsageError("a mark stands where the tokenizer keeps no token; mark another text")
    return position


def _facts(
    read: TokenizedText, found: Sequence[int], marks: Sequence[str], profile: Profile
) -> tuple[Fact, ...]:
    strong = set(profile.strong())
    facts = []
    for mark, at in zip(marks, found, strict=True):
        position = _token(read, at)
        phase = position % profile.stride
        pads = next(n for n in range(profile.stride) if (phase + n) % profile.stride in strong)
        facts.append(Fact(mark, position, phase, profile.accuracy[phase], phase in strong, pads))
    return tuple(facts)


def _wanted(
    read: TokenizedText,
    cuts: Sequence[int],
    found: Sequence[int],
    profile: Profile,
    limit: int | None,
) -> dict[int, int]:
    """Pads by character, where there are any."""
    if not cuts:
        return {}
    edges = [_token(read, cut) for cut in cuts] + [len(read)]
    keys = sorted(_token(read, at) for at in found)
    passages = [
        Passage((0,) * (end - start), tuple(key - start for key in keys if start <= key < end))
        for start, end in pairwise(edges)
    ]
    pads = pack(passages, profile, start=edges[0], limit=limit).pads
    return {cut: n for cut, n in zip(cuts, pads, strict=True) if n}


def _texts(
    text: str, wanted: Mapping[int, int], family: Family, tokenizer: Tokenizer
) -> dict[int, str] | None:
    """A text of the family for every place; None where one place has none.

    One table of texts serves all places that it fits, as neighbours rarely matter; the others look again.
    """
    styles, lengths = family.styles(tokenizer), sorted(set(wanted.values()))
    table: dict[int, str] = {}
    chosen: dict[int, str] = {}
    for cut, length in wanted.items():
        left, right = text[max(0, cut - EDGE) : cut], text[cut : cut + EDGE]

        def joined(
            texts: Sequence[str], left: str = left, right: str = right
        ) -> list[tuple[int, ...] | None]:
            return ids_between(tokenizer, left, right, texts)

        known = table.get(length)
        (ids,) = joined([known]) if known else (None,)
        if ids is None or len(ids) != length:
            found = exact_pads(styles, lengths, joined)
            if length in found.missing:
                return None
            table = found.texts
        chosen[cut] = table[length]
    return chosen


def _inserted(text: str, pads: Mapping[int, str]) -> str:
    edges = [0, *sorted(pads), len(text)]
    parts = [text[start:end] for start, end in pairwise(edges)]
    return parts[0] + "".join(pads[cut] + part for cut, part in zip(sorted(pads), parts[1:], strict=True))


def _content_starts(text: str, messages: Sequence[Mapping[str, str]], name: str) -> Iterator[int]:
    """Where each message's content begins in the rendered conversation."""
    at = 0
    for message in messages:
        start = text.find(message["content"], at)
        if start < 0:
            raise UsageError(f"the chat template of {name} changes a message; strip its ends of blanks")
        yield start
        at = start + len(message["content"])
