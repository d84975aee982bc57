"""What the mitigations win on prompts that the profile was not measured on, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..backends import Backend
from ..columns import Tabular, arrow_table
from ..errors import UsageError
from ..files import dump_json, read_record, write_atomic
from ..logs import Timing, read_timings
from ..protocols import Protocol
from ..protocols.kv_retrieval import KVRetrieval
from ..records import Name, Record
from ..running.runner import Condition
from ..runs import Run, read_run
from ..settings import Settings, setting
from ..statistics.intervals import Estimate
from ..statistics.profile import Profile
from .compare import Comparison, compare
from .unequal_records import Records
from .vote import Combine, PhaseVote

PLAIN, VOTE, ADAPTIVE = "plain", "vote", "adaptive vote"
RECORDS, PACKED, RANDOM = "records", "records packed", "records padded at random"
PAIRS = ((PLAIN, VOTE), (PLAIN, ADAPTIVE), (RECORDS, RANDOM), (RECORDS, PACKED))
"""Conditions without and with; the third is the control of the fourth: as many pads, at random."""


class MitigateSettings(Settings):
    """How a trial of the mitigations is made: the options of `phasescope mitigate`."""

    condition: str | None = setting(
        None, "Whose profile; needed where several conditions are phase-sensitive."
    )
    model: str | None = setting(None, "The checkpoint; by default what the run names.")
    shifts: tuple[int, ...] = setting(
        (),
        "Pads of one of the vote's askings; may be repeated. By default 0 and half a stride.",
        option="shift",
    )
    combine: Combine = setting("mean", "How the vote chooses.")
    below: float = setting(2.0, "Margin in nats under which the adaptive vote asks again.", ge=0)
    limit: int | None = setting(None, "The most pads per prompt.", ge=0)
    contexts: int = setting(48, "Contexts, all new; 25 or more for intervals to hold.", ge=4)
    seed: int | None = setting(
        None, "Seed of the new prompts; by default one more than the run's.", short="-s", ge=0
    )
    anyway: bool = setting(False, "Try it on a model without a phase effect too.")
    device: str = setting("cpu", "Where torch runs the model.")


class Outcome(Record):
    """One mitigation beside the same questions without it.

    Attributes:
        without, with_: names of the two conditions.
        comparison: accuracy by phase, and the gains.
        tokens: prompt tokens read with it, as a multiple of those without.
        seconds: time taken with it, as a multiple.
        pads: neutral tokens added per prompt.
    """

    without: Name
    with_: Name
    comparison: Comparison
    tokens: float
    seconds: float
    pads: float

    def words(self) -> str:
        """What it wins and costs, in one line."""
        one = self.comparison
        return (
            f"{self.with_}: weakest phase {_share(one.worst_without)} → {_share(one.worst_with)}, "
            f"mean {one.mean_without:.1%} → {one.mean_with:.1%} ({_points(one.mean_gain)}); costs "
            f"{self.tokens:.2f} x the tokens, {self.seconds:.2f} x the time, {self.pads:.1f} pads a prompt"
        )


class MitigationResult(Tabular, Record):
    """What mitigations win on a model: the content of mitigation.json.

    Attributes:
        profile: by which facts were placed.
        outcomes: one per mitigation; none where the profile shows no phase effect and nothing was tried.
    """

    profile: Profile
    outcomes: tuple[Outcome, ...]

    def __repr__(self) -> str:
        """Short, as a notebook shows it."""
        won = [f"{o.with_} {100 * (o.comparison.mean_gain.value or 0):+.1f} points" for o in self.outcomes]
        return f"MitigationResult({self.profile.condition[:60]!r}: {', '.join(won) or 'nothing tried'})"

    def lines(self) -> list[str]:
        """What was found, a line each, in percent and points."""
        profile = self.profile
        if not self.outcomes:
            return [
                f"{profile.condition}: no phase effect was found, so there is nothing to fix (--anyway tries all the "
                "same)"
            ]
        weakest, strongest = min(profile.accuracy), max(profile.accuracy)
        first = (
            f"{profile.condition}: stride {profile.stride}, accuracy {weakest:.1%} at phase "
            f"{profile.accuracy.index(weakest)} to {strongest:.1%} at phase {profile.accuracy.index(strongest)}"
            + ("" if profile.sensitive else "; no phase effect")
        )
        return [first, *(outcome.words() for outcome in self.outcomes)]

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`, one row per mitigation and phase: accuracy with and without it, and the gain."""
        rows = [
            PhaseGain(
                condition=outcome.with_,
                control=outcome.without,
                phase=phase,
                accuracy=one.with_[index],
                control_accuracy=one.without[index],
                gain=one.gain[index].value,
                low=one.gain[index].low,
                high=one.gain[index].high,
            )
            for outcome in self.outcomes
            for one in (outcome.comparison,)
            for index, phase in enumerate(one.phases)
        ]
        return arrow_table(PhaseGain, rows)

    def write(self, path: Path) -> None:
        """Write mitigation.json."""
        write_atomic(path, dump_json(self.model_dump(mode="json")))


class PhaseGain(Record):
    """A row of a result's table: accuracy at one phase with a mitigation, beside its control."""

    condition: Name
    control: Name
    phase: int
    accuracy: float
    control_accuracy: float
    gain: float | None
    low: float | None
    high: float | None


def read_mitigation(path: Path) -> MitigationResult:
    """Read a mitigation.json, of version 0.1 too.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: if it is not what `mitigate` writes.
    """
    return read_record(path, MitigationResult)


def conditions(
    backend: Backend, protocol: Protocol, profile: Profile, settings: MitigateSettings
) -> list[Condition]:
    """The conditions of a trial: the protocol plain and voted on, and records of unequal lengths padded or not.

    Records are asked where the protocol is a key-value retrieval, with its sizes.
    """
    shifts = settings.shifts or (0, max(1, profile.stride // 2))
    pads = _pads(backend, protocol, max(shifts))
    vote = PhaseVote(backend=backend, shifts=shifts, pads=pads, combine=settings.combine)
    made = [
        Condition(PLAIN, backend, protocol),
        Condition(VOTE, vote, protocol),
        Condition(ADAPTIVE, replace(vote, below=settings.below), protocol),
    ]
    if isinstance(protocol, KVRetrieval):
        records = Records(
            pairs=protocol.pairs,
            contexts=protocol.contexts,
            residues=protocol.residues,
            margin=protocol.margin,
            spread=profile.stride,
            profile=profile,
            limit=settings.limit,
        )
        made += [
            Condition(RECORDS, backend, records),
            Condition(PACKED, backend, replace(records, pads="pack")),
            Condition(RANDOM, backend, replace(records, pads="random")),
        ]
    return made


def _pads(backend: Backend, protocol: Protocol, most: int) -> tuple[int, ...]:
    """Neutral tokens: fillers of the vocabulary, and in real text newlines of the protocol's tokenizer."""
    tokenizer = getattr(protocol, "tokenizer", None)
    if protocol.synthetic or tokenizer is None:
        pads = tuple(backend.vocabulary().fillers)[:most]
    else:
        pads = tuple(tokenizer.encode("\n"))[-1:]
    if most and not pads:
        raise UsageError(
            f"the tokenizer of {backend.name} has no token for a newline, with which a vote pads"
        )
    return pads + pads[-1:] * (most - len(pads))


def result_of(folder: Path, profile: Profile, seed: int) -> MitigationResult:
    """Compare the conditions of a finished trial.

    Args:
        folder: of the trial's run.
        profile: that it was made with.
        seed: of the halvings.

    Raises:
        UsageError: if the folder holds no such run.
    """
    run, timings = read_run(folder), read_timings(folder)
    worst = int(np.argmin(profile.accuracy))

    found = []
    for without, with_ in PAIRS:
        if {without, with_} <= run.observations.keys():
            pair = run.observations[without], run.observations[with_]
            rng = np.random.default_rng([seed, *with_.encode()])
            plain, mitigated = (_cost(timings.get(name, [])) for name in (without, with_))
            found.append(
                Outcome(
                    without=without,
                    with_=with_,
                    comparison=compare(*pair, profile.stride, worst=worst, rng=rng),
                    tokens=mitigated[0] / plain[0],
                    seconds=mitigated[1] / plain[1],
                    pads=_mean_tokens(run, with_) - _mean_tokens(run, without),
                )
            )
    return MitigationResult(profile=profile, outcomes=tuple(found))


def _cost(timings: Sequence[Timing]) -> tuple[int, float]:
    """Tokens and seconds of one condition."""
    tokens, seconds = sum(one.tokens for one in timings), sum(one.seconds for one in timings)
    if not tokens or not seconds:
        raise UsageError("timings.jsonl does not say what the conditions cost; measure into another folder")
    return tokens, seconds


def _mean_tokens(run: Run, condition: str) -> float:
    return float(np.mean([one.prompt_tokens for one in run.observations[condition]]))


def _share(estimate: Estimate) -> str:
    return "–" if estimate.value is None else f"{estimate.value:.1%}"


def _points(estimate: Estimate) -> str:
    value, low, high = (100 * (x or 0.0) for x in (estimate.value, estimate.low, estimate.high))
    return f"{value:+.1f} points, {low:+.1f} to {high:+.1f}"
