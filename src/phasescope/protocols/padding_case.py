"""One prompt of a padding sweep as token ids, with the pads that fit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..text.padding import Family, Ids, exact_pads
from ..text.prompts import Prompt
from ..text.rendered import Page, Placement
from ..text.scorers import Scorer
from ..wording import listed


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt as token ids, ready to be padded.

    Attributes:
        name: of the prompt.
        parts: its ids before the pad, after it, and after a second pad; only the first may be empty.
        source: index of the token that is asked about in the prompt without pads.
        answer_ids, rival_ids: expected continuation, and the first token of each rival.
        answers: the texts of answer and rivals as far as they are compared, for a report.
        pads: ids by family and length.
        dropped: by family, why it cannot be used here.
    """

    name: str
    parts: tuple[Ids, Ids, Ids]
    source: int
    answer_ids: Ids
    rival_ids: Ids
    answers: tuple[str, ...]
    pads: dict[str, dict[int, Ids]]
    dropped: dict[str, str]

    @property
    def repeating(self) -> dict[str, int]:
        """Families whose pads repeat a unit of several tokens, with its size: a period of the pad itself."""
        units = {family: _unit(pads[max(pads)]) for family, pads in self.pads.items()}
        return {family: unit for family, unit in units.items() if unit > 1}

    @property
    def tokens(self) -> int:
        """Tokens of the prompt without pads."""
        return sum(map(len, self.parts))


def ids_case(
    prompt: Prompt, families: Sequence[Family], lengths: Sequence[int], placement: Placement
) -> Case:
    """A prompt that is given as ids; only families that are given as ids can pad it.

    Raises:
        UsageError: for places that do not fit the prompt, or a rival that begins as the expected ids do.
    """
    first = 0 if placement == "front" else prompt.at
    second = prompt.until if placement == "around" else len(prompt.prompt_ids)
    if first is None or second is None or not first < second:
        raise UsageError(
            f"prompt {prompt.name!r}: placement {placement} needs {'at' if first is None else 'until'}, "
            "an index into prompt_ids, and until beyond at"
        )
    rivals = tuple(ids[0] for ids in prompt.rival_ids)
    if prompt.expected_ids[0] in rivals:
        raise UsageError(f"prompt {prompt.name!r}: a rival begins with the expected token {rivals[0]}")
    ids = prompt.prompt_ids
    pads = {family.name: {n: (family.ids * n)[:n] for n in lengths} for family in families if family.ids}
    answer_ids = prompt.expected_ids[:1] if rivals else prompt.expected_ids
    return Case(
        name=prompt.name,
        parts=(ids[:first], ids[first:second], ids[second:]),
        source=first if prompt.source is None else prompt.source,
        answer_ids=answer_ids,
        rival_ids=rivals,
        answers=tuple(f"id {token}" for token in (answer_ids[0], *rivals)),
        pads=pads,
        dropped={f.name: "a prompt of ids needs pads of ids, ids:1,2,3" for f in families if not f.ids},
    )


def text_case(
    prompt: Prompt,
    page: Page,
    families: Sequence[Family],
    lengths: Sequence[int],
    *,
    around: bool,
    scorer: Scorer | None,
) -> Case:
    """A prompt that is given as text, with the families that have pads of exactly these lengths in it.

    Raises:
        UsageError: for a mark that splits a token, or answers that cannot be told apart by their first token.
    """
    answer_ids, rival_ids, answers = _answers(page, prompt, scored=scorer is not None)
    if scorer is not None and scorer.needs_expected and not prompt.expected.strip():
        raise UsageError(f"prompt {prompt.name!r}: scorer {scorer.given} needs an expected text")
    if 0 in lengths and not page.whole({0: ""}, (0,), around=False):
        raise UsageError(
            f"prompt {prompt.name!r}: the mark splits a token, or blanks beside it join with the text; move it to "
            "the beginning of a line or word, or let lengths begin at 1"
        )
    pads: dict[str, dict[int, Ids]] = {}
    dropped: dict[str, str] = {}
    for family in families:
        found = _pads(page, family, lengths, around)
        if isinstance(found, str):
            dropped[family.name] = found
        elif twin := next((name for name, other in pads.items() if other == found), None):
            dropped[family.name] = f"under this tokenizer it is the same as {twin}"
        else:
            pads[family.name] = found
    return Case(prompt.name, page.parts, page.source, answer_ids, rival_ids, answers, pads, dropped)


def _pads(page: Page, family: Family, lengths: Sequence[int], around: bool) -> dict[int, Ids] | str:
    """A family's ids by length, or why there are none."""
    if family.ids:
        return "pads of ids need a prompt of ids"
    pads = exact_pads(family.styles(page.tokenizer), lengths, page.joined)
    if pads.missing:
        return (
            f"no pad of exactly {listed(pads.missing, 8)} tokens leaves the prompt's own tokens as they are"
        )
    if pads.uneven:
        return "its pads would differ in more than their length"
    if not page.whole(pads.texts, lengths, around):
        return "read as a whole, a padded prompt has other tokens than its parts"
    return pads.ids


def _answers(page: Page, prompt: Prompt, *, scored: bool) -> tuple[Ids, Ids, tuple[str, ...]]:
    """The expected ids, the first token of each rival, and the texts of what is compared.

    With rivals the answers part at their first token, and that one decides.
    """
    if scored:
        return (), (), (prompt.expected,) if prompt.expected else ()
    if not prompt.expected:
        raise UsageError(f"prompt {prompt.name!r} has no expected continuation; give one, or a scorer")
    expected, *rivals = (page.continuation(text) for text in (prompt.expected, *prompt.rival))
    for text, ids in zip(prompt.rival, rivals, strict=True):
        if ids[0] == expected[0]:
            shared = page.tokenizer.decode(ids[:1])
            raise UsageError(
                f"prompt {prompt.name!r}: expected {prompt.expected!r} and rival {text!r} begin with the same "
                f"token {shared!r}; put what they share at the end of the prompt, so that they part at once"
            )
    firsts = tuple(dict.fromkeys(ids[0] for ids in rivals))
    answer_ids = expected[:1] if rivals else expected
    return (
        answer_ids,
        firsts,
        tuple(page.tokenizer.decode(ids) for ids in (answer_ids, *((t,) for t in firsts))),
    )


def _unit(pad: Ids) -> int:
    """The number of tokens after which a pad repeats, opening and closing aside; 1 for one token over and over.

    0 where it does not repeat twice.
    """
    core = pad[2:-3]
    return next((n for n in range(1, len(core) // 2 + 1) if core[n:] == core[:-n]), 0)
