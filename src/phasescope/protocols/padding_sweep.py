"""A padding sweep of real prompts: the same question with 0, 1, 2, … meaningless tokens put in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from ..errors import UsageError
from ..files import dump_json
from ..records import Observation, Reply, Trial
from ..text.padding import Family, Ids, parse_families
from ..text.prompts import Prompt
from ..text.rendered import Page, Placement, Places
from ..text.scorers import Scorer
from ..text.synthetic import RetrievalVocabulary
from ..text.tokens import Tokenizer
from ..wording import listed
from .base import Batch, Plan, Protocol
from .padding_case import Case, ids_case, text_case

LONGEST = 512
"""Pad tokens at most: two turns of every stride up to 256."""
LEGIBLE = 200
"""Characters that are kept of a continuation which is not scored as text."""


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
        return tuple(self._case(prompt, families) for prompt in self.prompts)

    def _case(self, prompt: Prompt, families: Sequence[Family]) -> Case:
        if prompt.prompt_ids:
            return ids_case(prompt, families, self.lengths, self.placement)
        assert self.tokenizer is not None  # checked with the settings
        places = Places(
            placement=self.placement,
            mark=self.mark,
            second_mark=self.second_mark,
            source_mark=self.source_mark,
        )
        page = Page.of(self.tokenizer, prompt, places, chat=self.chat, system=self.system)
        around = self.placement == "around"
        return text_case(prompt, page, families, self.lengths, around=around, scorer=self.scorer)

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

    def observe(self, trial: Trial, reply: Reply, condition: str) -> Observation:
        """Score by the next token, or by the scorer; keep the strongest rival's log-probability."""
        text = self._text(reply)
        expected = next(prompt.expected for prompt in self.prompts if prompt.name == trial.cluster)
        if self.scorer is not None:
            plain = super().observe(trial, replace(reply, candidate_logprobs=None), condition)
            return plain.model_copy(update={"score": self.scorer.score(text or "", expected), "text": text})
        seen: dict[str, Any] = {"text": None if text is None else text[:LEGIBLE]}
        if not reply.ids and text is not None:
            seen["score"] = float(text.lstrip().startswith(expected.lstrip()))
        if reply.candidate_logprobs is not None:
            strongest = max(reply.candidate_logprobs[1:])
            seen["rival_logprob"] = strongest if np.isfinite(strongest) else None
        return super().observe(trial, reply, condition).model_copy(update=seen)

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
            f"lengths are {listed(lengths, 8)}; give two or more different whole numbers from 0 to {LONGEST}"
        )
