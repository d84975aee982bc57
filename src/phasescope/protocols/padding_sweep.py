"""A padding sweep of real prompts: the same question with 0, 1, 2, … meaningless tokens put in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from ..errors import UsageError
from ..records import Observation, Reply, Trial, dump_json
from ..synthetic import RetrievalVocabulary
from ..tokens import Tokenizer
from .base import Batch, Plan, Protocol
from .padding import Family, exact_pads, ids_between, parse_families
from .prompts import Prompt
from .scorers import Scorer

Ids = tuple[int, ...]
Placement = Literal["front", "mark", "around"]

LONGEST = 512
"""Pad tokens at most: two turns of every stride up to 256."""
LEGIBLE = 200
"""Characters that are kept of a continuation which is not scored as text."""
_HERE = "\N{WHITE LARGE SQUARE}message\N{WHITE LARGE SQUARE}"
_EDGE = 64  # characters on either side of a pad that are read to find one that fits; all are read in the end


def parse_lengths(text: str) -> tuple[int, ...]:
    """Numbers of pad tokens: FIRST:END[:STEP] without END, as Python counts, or a list with commas.

    Raises:
        UsageError: for anything else.
    """
    try:
        if ":" in text:
            return tuple(range(*(int(part) for part in text.split(":")))[: LONGEST + 2])
        return tuple(int(part) for part in text.split(","))
    except (ValueError, TypeError):
        raise UsageError(
            f"lengths {text!r}: give FIRST:END such as 24:40 (24 to 39), or a list such as 0,4,8"
        ) from None


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


@dataclass(frozen=True, kw_only=True)
class PaddingSweep(Protocol):
    """The user's own prompts with L meaningless tokens inserted, for each L and several kinds of padding.

        front     pad_L prompt                      moves source and query together
        mark      head pad_L rest                   moves what stands after the mark, the query too
        around    head pad_L middle pad_(K − L) rest      moves the middle alone; length and query stay

    Pads have exactly L tokens: a family whose text cannot have exactly that many, with every token of the
    prompt as it was, is dropped and named, never approximated. Each padded prompt is the tokenizer's own
    reading of its text, so a server that takes text sees the same ids. In a chat template the pad stands
    inside the user's message, and the template's own tokens are counted.

    A prompt is a cluster, a prompt under one family a block and a batch, and L the layout. Families pad the
    same prompt to the same positions, so the statistics permute L jointly for all of them.

    Args:
        prompts: what is asked.
        lengths: numbers of pad tokens.
        families: padding families by name, or `text:…` and `ids:…` for the user's own.
        placement: where pads go.
        mark, second_mark: what stands in a prompt where pads go.
        source_mark: what stands in front of what is asked about; by default that is the first token after
            the pad.
        chat: put prompts into the tokenizer's chat template.
        system: a system message, for chat.
        scorer: scores a generated text; by default the next token decides.
        new_tokens: tokens to generate for a scorer.
        tokenizer: of the model; none for prompts given as ids.

    Raises:
        UsageError: for settings or prompts that cannot be asked as they say.

    Source: arXiv 2609.36322, the code-completion sweep.
    Differs: the paper's prompts and padding families are not known; placement, scorers and the fixed-length
        variant are ours.
    """

    name: ClassVar[str] = "sweep"
    synthetic: ClassVar[bool] = False
    moves: ClassVar[Literal["source", "query"]] = "source"

    prompts: tuple[Prompt, ...]
    lengths: tuple[int, ...]
    families: tuple[str, ...] = ("line",)
    placement: Placement = "front"
    mark: str = "<pad>"
    second_mark: str = "</pad>"
    source_mark: str | None = None
    chat: bool = False
    system: str | None = None
    scorer: Scorer | None = None
    new_tokens: int = 64
    tokenizer: Tokenizer | None = None

    def __post_init__(self) -> None:
        _check_lengths(self.lengths)
        if self.placement not in ("front", "mark", "around"):
            raise UsageError(f"placement is {self.placement!r}; give front, mark or around")
        if self.placement == "around" and set(self._second) != set(self.lengths):
            raise UsageError(
                "lengths around a middle need equal steps, so that both pads together stay equal"
            )
        if self.new_tokens < 1:
            raise UsageError(f"{self.new_tokens} tokens to generate; give at least 1")
        if self.system is not None and not self.chat:
            raise UsageError("a system message needs a chat template; ask for chat as well")
        if not self.prompts:
            raise UsageError("no prompt to sweep; give at least one")
        if self.tokenizer is None and (
            self.chat or self.scorer or any(not p.prompt_ids for p in self.prompts)
        ):
            raise UsageError(
                "a prompt of text, a chat or a scorer needs the model's tokenizer; give its folder"
            )
        parse_families(self.families)
        if all(not case.pads for case in self.cases):
            reasons = "; ".join(f"{family}: {why}" for family, why in self.dropped.items())
            raise UsageError(f"no padding family can be used: {reasons}")

    @property
    def _second(self) -> tuple[int, ...]:
        """The length of the second pad for each length, in placement `around`."""
        return tuple(min(self.lengths) + max(self.lengths) - length for length in self.lengths)

    @property
    def coordinate(self) -> Literal["source", "query"]:
        """What moves in every prompt: the query alone where the source stands before the pad."""
        stays = all(case.source < len(case.parts[0]) for case in self.cases)
        return "query" if stays and self.placement != "around" else "source"

    @property
    def dropped(self) -> dict[str, str]:
        """Families that cannot be used for some prompt, with the first reason."""
        return {family: f"{why} ({case.name})" for case in self.cases for family, why in case.dropped.items()}

    @property
    def repeating(self) -> dict[str, int]:
        """Families whose pads repeat a unit of several tokens in some prompt, with its size."""
        return {family: unit for case in self.cases for family, unit in case.repeating.items()}

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Every prompt as ids, with the pads that fit it."""
        families = parse_families(self.families)
        return tuple(
            (_ids_case if prompt.prompt_ids else _text_case)(self, prompt, families)
            for prompt in self.prompts
        )

    def batch_sizes(self) -> list[int]:
        """One batch per prompt and family: its lengths."""
        return [len(self.lengths) for case in self.cases for _ in case.pads]

    def plan(self) -> Plan:
        """Exact, with every padded prompt read whole."""
        second = self._second if self.placement == "around" else (0,) * len(self.lengths)
        pads = sum(self.lengths) + sum(second)
        tokens = sum(len(case.pads) * (len(self.lengths) * case.tokens + pads) for case in self.cases)
        return Plan(sum(self.batch_sizes()), tokens, tokens)

    def batches(self, vocabulary: RetrievalVocabulary | None, rng: np.random.Generator) -> Iterator[Batch]:
        """Every prompt under every family that fits it, L by L; nothing is drawn."""
        for case in self.cases:
            for family, pads in case.pads.items():
                yield tuple(self._trial(case, family, pads, length) for length in self.lengths)

    def _trial(self, case: Case, family: str, pads: dict[int, Ids], length: int) -> Trial:
        head, middle, rest = case.parts
        other = pads[min(self.lengths) + max(self.lengths) - length] if self.placement == "around" else ()
        source = case.source + (case.source >= len(head)) * length
        source += (case.source >= len(head) + len(middle)) * len(other)
        scored = self.scorer is not None
        return Trial(
            prompt_ids=head + pads[length] + middle + other + rest,
            answer_ids=() if scored else case.answer_ids,
            candidate_ids=() if scored or not case.rival_ids else (case.answer_ids[0], *case.rival_ids),
            source_position=source,
            block=f"{case.name}/{family}",
            cluster=case.name,
            layout=length,
            generate=self.new_tokens if scored else None,
        )

    def observe(self, trial: Trial, reply: Reply, arm: str) -> Observation:
        """Score by the next token, or by the scorer; keep the strongest rival's log-probability."""
        text = self._text(reply)
        expected = next(prompt.expected for prompt in self.prompts if prompt.name == trial.cluster)
        if self.scorer is not None:
            plain = super().observe(trial, replace(reply, candidate_logprobs=None), arm)
            return plain.model_copy(update={"score": self.scorer.score(text or "", expected), "text": text})
        seen: dict[str, Any] = {"text": None if text is None else text[:LEGIBLE]}
        if not reply.ids and text is not None:
            seen["score"] = float(text.lstrip().startswith(expected.lstrip()))
        if reply.candidate_logprobs is not None:
            strongest = max(reply.candidate_logprobs[1:])
            seen["rival_logprob"] = strongest if np.isfinite(strongest) else None
        return super().observe(trial, reply, arm).model_copy(update=seen)

    def _text(self, reply: Reply) -> str | None:
        """The continuation as text, without control tokens."""
        if reply.text is not None or self.tokenizer is None:
            return reply.text
        control = self.tokenizer.special_ids
        return self.tokenizer.decode([token for token in reply.ids if token not in control])

    def settings(self) -> dict[str, Any]:
        """The settings as JSON values; prompts by their digest, the scorer by name and digest."""
        values = super().settings()
        everything = dump_json([prompt.model_dump(mode="json") for prompt in self.prompts])
        values["prompts"] = hashlib.sha256(everything.encode()).hexdigest()
        if self.scorer is not None:
            values["scorer"] = {"given": self.scorer.given, "digest": self.scorer.digest}
        unused = {"new_tokens"} if self.scorer is None else set()
        unused |= {"mark"} if self.placement == "front" else set()
        unused |= {"second_mark"} if self.placement != "around" else set()
        return {name: None if name in unused else value for name, value in values.items()}

    def describe(self) -> dict[str, Any]:
        """As for every protocol, and what became of prompts and families."""
        return super().describe() | {
            "moves": self.coordinate,
            "comparable": self.source_mark is not None or self.placement == "around" or self._marked_ids,
            "prompts": [
                {
                    "name": case.name,
                    "tokens": case.tokens,
                    "source": case.source,
                    "before_pad": len(case.parts[0]),
                    "expected": prompt.expected,
                    "rival": list(prompt.rival),
                    "answers": list(case.answers),
                    "families": list(case.pads),
                }
                for prompt, case in zip(self.prompts, self.cases, strict=True)
            ],
            "dropped_families": self.dropped,
            "repeating_families": self.repeating,
        }

    @property
    def _marked_ids(self) -> bool:
        return all(prompt.source is not None for prompt in self.prompts)


def _check_lengths(lengths: Sequence[int]) -> None:
    whole = all(isinstance(length, int) and not isinstance(length, bool) for length in lengths)
    if not whole or len(set(lengths)) < max(2, len(lengths)) or min(lengths) < 0 or max(lengths) > LONGEST:
        raise UsageError(
            f"lengths are {_some(lengths)}; give two or more different whole numbers from 0 to {LONGEST}"
        )


def _unit(pad: Ids) -> int:
    """The number of tokens after which a pad repeats, opening and closing aside; 1 for one token over and over.

    0 where it does not repeat twice.
    """
    core = pad[2:-3]
    return next((n for n in range(1, len(core) // 2 + 1) if core[n:] == core[:-n]), 0)


def _some(values: Sequence[object]) -> str:
    listed = ", ".join(map(str, values[:8]))
    return f"{listed}, …" if len(values) > 8 else listed or "none"


def _ids_case(sweep: PaddingSweep, prompt: Prompt, families: Sequence[Family]) -> Case:
    """A prompt that is given as ids; only families that are given as ids can pad it."""
    first = 0 if sweep.placement == "front" else prompt.at
    second = prompt.until if sweep.placement == "around" else len(prompt.prompt_ids)
    if first is None or second is None or not first < second:
        raise UsageError(
            f"prompt {prompt.name!r}: placement {sweep.placement} needs {'at' if first is None else 'until'}, "
            "an index into prompt_ids, and until beyond at"
        )
    rivals = tuple(ids[0] for ids in prompt.rival_ids)
    if prompt.expected_ids[0] in rivals:
        raise UsageError(f"prompt {prompt.name!r}: a rival begins with the expected token {rivals[0]}")
    ids = prompt.prompt_ids
    pads = {
        family.name: {n: (family.ids * n)[:n] for n in sweep.lengths} for family in families if family.ids
    }
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


def _text_case(sweep: PaddingSweep, prompt: Prompt, families: Sequence[Family]) -> Case:
    assert sweep.tokenizer is not None  # checked with the settings
    page = _Page.of(sweep, sweep.tokenizer, prompt)
    answer_ids, rival_ids, answers = _answers(page, prompt, scored=sweep.scorer is not None)
    if sweep.scorer is not None and sweep.scorer.needs_expected and not prompt.expected.strip():
        raise UsageError(f"prompt {prompt.name!r}: scorer {sweep.scorer.given} needs an expected text")
    lengths = sweep.lengths
    around = sweep.placement == "around"
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


def _pads(page: _Page, family: Family, lengths: Sequence[int], around: bool) -> dict[int, Ids] | str:
    """A family's ids by length, or why there are none."""
    if family.ids:
        return "pads of ids need a prompt of ids"
    pads = exact_pads(family.styles(page.tokenizer), lengths, page.joined)
    if pads.missing:
        return f"no pad of exactly {_some(pads.missing)} tokens leaves the prompt's own tokens as they are"
    if pads.uneven:
        return "its pads would differ in more than their length"
    if not page.whole(pads.texts, lengths, around):
        return "read as a whole, a padded prompt has other tokens than its parts"
    return pads.ids


def _answers(page: _Page, prompt: Prompt, *, scored: bool) -> tuple[Ids, Ids, tuple[str, ...]]:
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


@dataclass(frozen=True)
class _Page:
    """A prompt of text between two pads, as text and as ids.

    Attributes:
        tokenizer: of the model.
        texts: before the first pad, after it, and after the second one, the template's text included.
        start_ids: what the tokenizer puts in front of every text.
        source_at: character of the source in the joined texts.
        rendered: the whole text from the user's message.
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
    def of(cls, sweep: PaddingSweep, tokenizer: Tokenizer, prompt: Prompt) -> _Page:
        message, source_at = _cut(sweep, prompt)
        head, middle, rest = message
        start_ids: Ids = () if sweep.chat else tokenizer.start_ids
        if start_ids and tokenizer.encode("".join(message)[:_EDGE])[: len(start_ids)] == list(start_ids):
            start_ids = ()  # the user's text begins with it already
        if sweep.chat:
            before, after = _template(tokenizer, "".join(message), sweep.system)
            head, source_at = before + head, source_at + len(before)
            middle, rest = (middle, rest + after) if rest else (middle + after, "")
        return cls(tokenizer, (head, middle, rest), start_ids, source_at, sweep.chat, sweep.system, message)

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
                spans = self.tokenizer.encode_spans(text)[1]
                return before + next(index for index, (_, end) in enumerate(spans) if end > left)
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
        shown = self.tokenizer.render(_messages(head + one + middle + two + rest, self.system))
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


def _cut(sweep: PaddingSweep, prompt: Prompt) -> tuple[tuple[str, str, str], int]:
    """The user's text without marks, in three parts, and the character of the source in it."""
    text, marks = prompt.prompt, [sweep.mark, sweep.second_mark]
    used = {"front": 0, "mark": 1, "around": 2}[sweep.placement]
    wanted = [*marks[:used], *([sweep.source_mark] if sweep.source_mark is not None else [])]
    for mark in wanted:
        if not mark or text.count(mark) != 1:
            raise UsageError(
                f"prompt {prompt.name!r} has the mark {mark!r} {text.count(mark) if mark else 0} times; it must stand "
                "in it exactly once, or choose another mark or placement"
            )
    if not used and sweep.mark in text:
        raise UsageError(
            f"prompt {prompt.name!r} has the mark {sweep.mark!r}, but pads go to the front; choose placement mark, "
            "or another mark"
        )
    source = text.find(sweep.source_mark) if sweep.source_mark else None
    text = text.replace(sweep.source_mark, "") if sweep.source_mark else text
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


def _messages(content: str, system: str | None) -> list[dict[str, str]]:
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": content}]


def _template(tokenizer: Tokenizer, content: str, system: str | None) -> tuple[str, str]:
    """The template's text before and after a message.

    Raises:
        UsageError: if there is no template, or it changes the message.
    """
    tokenizer.chat(content, system=system)  # refuses what it cannot do
    before, _, after = tokenizer.render(_messages(_HERE, system)).partition(_HERE)
    return before, after
