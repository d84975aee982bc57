"""What the mitigations win on prompts that the profile was not measured on, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from ..backends import Backend
from ..errors import UsageError
from ..files import dump_json, write_atomic
from ..logs import Timing, read_timings
from ..mitigations.unequal_records import Records
from ..protocols import Protocol
from ..protocols.kv_retrieval import KVRetrieval
from ..running.runner import Condition
from ..runs import Run, read_run
from ..statistics.intervals import Estimate
from ..statistics.profile import Profile
from .compare import Comparison, compare
from .vote import Combine, PhaseVote

PLAIN, VOTE, ADAPTIVE = "plain", "vote", "adaptive vote"
RECORDS, PACKED, RANDOM = "records", "records packed", "records padded at random"
PAIRS = ((PLAIN, VOTE), (PLAIN, ADAPTIVE), (RECORDS, RANDOM), (RECORDS, PACKED))
"""Conditions without and with; the third is the control of the fourth: as many pads, at random."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How to vote and how to pack.

    Attributes:
        shifts: numbers of pads of the vote's askings.
        combine: how the vote chooses.
        below: the adaptive vote's margin, in nats.
        limit: the most pads per prompt; as many as are useful by default.
    """

    shifts: tuple[int, ...]
    combine: Combine = "mean"
    below: float = 2.0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mitigation beside the same questions without it.

    Attributes:
        without, with_: names of the two conditions.
        comparison: accuracy by phase, and the gains.
        tokens: prompt tokens read with it, as a multiple of those without.
        seconds: time taken with it, as a multiple.
        pads: neutral tokens added per prompt.
    """

    without: str
    with_: str
    comparison: Comparison
    tokens: float
    seconds: float
    pads: float


def conditions(backend: Backend, protocol: Protocol, profile: Profile, ways: Ways) -> list[Condition]:
    """The conditions of a trial: the protocol plain and voted on, and records of unequal lengths padded or not.

    Records are asked where the protocol is a key-value retrieval, with its sizes.
    """
    pads = tuple(backend.vocabulary().fillers)[: max(ways.shifts)]
    pads += pads[-1:] * (max(ways.shifts) - len(pads))
    vote = PhaseVote(backend=backend, shifts=ways.shifts, pads=pads, combine=ways.combine)
    made = [
        Condition(PLAIN, backend, protocol),
        Condition(VOTE, vote, protocol),
        Condition(ADAPTIVE, replace(vote, below=ways.below), protocol),
    ]
    if isinstance(protocol, KVRetrieval):
        records = Records(
            pairs=protocol.pairs,
            contexts=protocol.contexts,
            residues=protocol.residues,
            margin=protocol.margin,
            spread=profile.stride,
            profile=profile,
            limit=ways.limit,
        )
        made += [
            Condition(RECORDS, backend, records),
            Condition(PACKED, backend, replace(records, pads="pack")),
            Condition(RANDOM, backend, replace(records, pads="random")),
        ]
    return made


def outcomes(folder: Path, profile: Profile, seed: int) -> list[Outcome]:
    """Compare the conditions of a finished trial.

    Raises:
        UsageError: if the folder holds no such run.
    """
    run, costs = read_run(folder), read_timings(folder)
    worst = int(np.argmin(profile.accuracy))
    found = []
    for without, with_ in PAIRS:
        if {without, with_} <= run.observations.keys():
            pair = run.observations[without], run.observations[with_]
            rng = np.random.default_rng([seed, *with_.encode()])
            comparison = compare(*pair, profile.stride, worst=worst, rng=rng)
            plain, mitigated = (_cost(costs.get(name, [])) for name in (without, with_))
            found.append(
                Outcome(
                    without,
                    with_,
                    comparison,
                    tokens=mitigated[0] / plain[0],
                    seconds=mitigated[1] / plain[1],
                    pads=_mean_tokens(run, with_) - _mean_tokens(run, without),
                )
            )
    return found


def write_outcomes(path: Path, profile: Profile, found: Sequence[Outcome]) -> None:
    """Write mitigation.json: the profile that was used, and what each mitigation won."""
    listed = [asdict(outcome) for outcome in found]
    write_atomic(path, dump_json({"profile": profile.model_dump(mode="json"), "outcomes": listed}))


def _cost(timings: Sequence[Timing]) -> tuple[int, float]:
    """Tokens and seconds of one condition."""
    tokens, seconds = sum(one.tokens for one in timings), sum(one.seconds for one in timings)
    if not tokens or not seconds:
        raise UsageError("timings.jsonl does not say what the conditions cost; measure into another folder")
    return tokens, seconds


def _mean_tokens(run: Run, condition: str) -> float:
    return float(np.mean([one.prompt_tokens for one in run.observations[condition]]))


def lines(profile: Profile, found: Sequence[Outcome]) -> list[str]:
    """What was found, a line each, in percent and points."""
    weakest, strongest = min(profile.accuracy), max(profile.accuracy)
    said = [
        f"{profile.condition}: stride {profile.stride}, accuracy {weakest:.1%} at phase "
        f"{int(np.argmin(profile.accuracy))} to {strongest:.1%} at phase {int(np.argmax(profile.accuracy))}"
        + ("" if profile.sensitive else "; no phase effect")
    ]
    for outcome in found:
        one = outcome.comparison
        said.append(
            f"{outcome.with_}: weakest phase {_share(one.worst_without)} → {_share(one.worst_with)}, "
            f"mean {one.mean_without:.1%} → {one.mean_with:.1%} ({_points(one.mean_gain)}); costs "
            f"{outcome.tokens:.2f} x the tokens, {outcome.seconds:.2f} x the time, {outcome.pads:.1f} pads a prompt"
        )
    return said


def _share(estimate: Estimate) -> str:
    return "–" if estimate.value is None else f"{estimate.value:.1%}"


def _points(estimate: Estimate) -> str:
    value, low, high = (100 * (x or 0.0) for x in (estimate.value, estimate.low, estimate.high))
    return f"{value:+.1f} points, {low:+.1f} to {high:+.1f}"
