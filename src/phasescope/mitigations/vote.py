"""Ask at several shifts and combine: a backend made of a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..backends import Backend
from ..errors import UsageError
from ..records import NoReply, Reply, Trial
from ..text.synthetic import RetrievalVocabulary

Combine = Literal["mean", "margin", "majority"]


def shifted(trial: Trial, pads: Sequence[int]) -> Trial:
    """The same question with neutral tokens in front; inside a chat template, in front of the message."""
    at = trial.content[0] if trial.content else 0
    pads = tuple(pads)
    return replace(
        trial,
        prompt_ids=(*trial.prompt_ids[:at], *pads, *trial.prompt_ids[at:]),
        source_position=trial.source_position + len(pads),
        content=trial.content and (trial.content[0], trial.content[1] + len(pads)),
    )


@dataclass(kw_only=True)
class PhaseVote:
    """Answers each trial from several askings, each with another number of neutral tokens in front.

    Every asking names its greedy answer; of these the vote chooses

        mean        the one with the highest probability, averaged over the askings
        margin      that of the asking whose best answer leads its runner-up by most
        majority    the most frequent one

    and of equals the one from the earliest shift. A probability that an asking does not give counts as 0: it is
    known for its own greedy answer and for the trial's candidates. With `below`, the first shift alone is
    asked, and the others only where its margin is smaller (in nats): the adaptive vote.

    A vote costs as many prefills as shifts; `tokens` counts them all.

    Args:
        backend: who is asked.
        shifts: numbers of pads in front; the first is what the plain backend would be asked, so usually 0.
        pads: neutral token ids, at least as many as the largest shift.
        combine: how to choose.
        below: the margin under which the other shifts are asked; all are always asked by default.

    Attributes:
        asked: prompts that were asked so far.

    Raises:
        UsageError: for no shifts, negative or repeated ones, too few pads, or an unknown way to combine.
    """

    backend: Backend
    shifts: tuple[int, ...]
    pads: tuple[int, ...]
    combine: Combine = "mean"
    below: float | None = None
    asked: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if len(self.shifts) < 1 or min(self.shifts) < 0 or len(set(self.shifts)) < len(self.shifts):
            raise UsageError(f"shifts are {self.shifts}; give at least one, each once, none negative")
        if max(self.shifts) > len(self.pads):
            raise UsageError(f"a shift of {max(self.shifts)} needs as many pads; {len(self.pads)} are given")
        if self.combine not in CHOICES:
            raise UsageError(f"combine is {self.combine!r}; give one of {', '.join(CHOICES)}")

    @property
    def name(self) -> str:
        """The backend's name, and how it is asked."""
        how = self.combine if self.below is None else f"adaptive {self.combine}"
        return f"{self.backend.name}, {how} of {len(self.shifts)}"

    @property
    def tokens(self) -> int:
        """Prompt tokens read so far, by all askings."""
        return self.backend.tokens

    def vocabulary(self) -> RetrievalVocabulary:
        """The backend's."""
        return self.backend.vocabulary()

    def describe(self) -> dict[str, Any]:
        """The backend's facts, and how it is asked."""
        vote = {"shifts": self.shifts, "pads": self.pads, "combine": self.combine, "below": self.below}
        return {**self.backend.describe(), "vote": vote}

    def answer(self, trials: Sequence[Trial]) -> list[Reply | NoReply]:
        """One reply per trial; a trial that no asking answered gives the first one's reason."""
        first = self._ask(trials, self.shifts[:1])
        again = [index for index, (reply,) in enumerate(first) if self._doubtful(reply)]
        more = dict(zip(again, self._ask([trials[index] for index in again], self.shifts[1:]), strict=True))
        return [
            _combined(trial, [*replies, *more.get(index, ())], CHOICES[self.combine])
            for index, (trial, replies) in enumerate(zip(trials, first, strict=True))
        ]

    def _ask(self, trials: Sequence[Trial], shifts: Sequence[int]) -> list[list[Reply | NoReply]]:
        """Every trial at every shift, in one call, so that a backend may share what they have in common."""
        asked = [shifted(trial, self.pads[:shift]) for shift in shifts for trial in trials]
        self.asked += len(asked)
        replies = list(self.backend.answer(asked)) if asked else []
        return [replies[index :: len(trials)] for index in range(len(trials))]

    def _doubtful(self, reply: Reply | NoReply) -> bool:
        if self.below is None or isinstance(reply, NoReply):
            return True
        return reply.margin is None or reply.margin < self.below


def _combined(trial: Trial, replies: Sequence[Reply | NoReply], choose: Choice) -> Reply | NoReply:
    """One reply from several; log-probabilities are those of the averaged probabilities."""
    usable = [reply for reply in replies if isinstance(reply, Reply)]
    if not usable:
        return replies[0]
    chosen = choose(trial, usable)
    candidates = [reply.candidate_logprobs for reply in usable if reply.candidate_logprobs is not None]
    answers = [reply.answer_logprob for reply in usable if reply.answer_logprob is not None]
    return replace(
        chosen,
        prompt_tokens=usable[0].prompt_tokens,
        answer_logprob=_log_mean(answers) if len(answers) == len(usable) else None,
        candidate_logprobs=(
            tuple(map(_log_mean, zip(*candidates, strict=True))) if len(candidates) == len(usable) else None
        ),
    )


def _log_mean(logprobs: Sequence[float]) -> float:
    """The logarithm of a mean probability."""
    return float(np.logaddexp.reduce(np.asarray(logprobs)) - np.log(len(logprobs)))


Choice = Callable[[Trial, Sequence[Reply]], Reply]


def _by_mean(trial: Trial, replies: Sequence[Reply]) -> Reply:
    place = {candidate: index for index, candidate in enumerate(trial.candidate_ids)}

    def probability(reply: Reply, answer: Reply) -> float:
        if reply.ids == answer.ids and reply.greedy_logprob is not None:
            return float(np.exp(reply.greedy_logprob))
        index = place.get(answer.ids[0]) if len(answer.ids) == 1 else None
        known = index is not None and reply.candidate_logprobs is not None
        return float(np.exp(reply.candidate_logprobs[index])) if known else 0.0  # type: ignore[index]  # known

    return max(replies, key=lambda answer: sum(probability(reply, answer) for reply in replies))


def _by_margin(trial: Trial, replies: Sequence[Reply]) -> Reply:
    return max(replies, key=lambda reply: -np.inf if reply.margin is None else reply.margin)


def _by_majority(trial: Trial, replies: Sequence[Reply]) -> Reply:
    return max(replies, key=lambda reply: sum(other.ids == reply.ids for other in replies))


CHOICES: dict[str, Choice] = {"mean": _by_mean, "margin": _by_margin, "majority": _by_majority}
