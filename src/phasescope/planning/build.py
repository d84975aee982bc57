"""The plan of a run: power, trials, tokens, memory, time and money of every condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..backends import BackendSpec
from ..checkpoints.memory import UNKNOWN, Memory, folder_memory
from ..errors import UsageError
from ..running import Introduction
from ..running.engine import Dispatcher
from ..running.runner import Condition, describe, planned
from ..runs import folds
from ..statistics.fold import identified_fold
from ..statistics.phase_effect import detectable, power_at
from ..statistics.power import Guess, planned_noise
from .calibrate import Pace, calibrate
from .counts import Counts, count

EFFECT = 0.05
"""Phase SD whose power is reported: 5 points."""
ENOUGH = 25
"""Contexts from which the intervals were shown to hold."""
BUDGET = 5.0
"""Seconds of calibration per condition."""

Report = Callable[[str], None]
"""Called with what is being worked out, in words."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens, in any currency.

    Raises:
        UsageError: for a negative one.
    """

    per_million_in: float = 0.0
    per_million_out: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.per_million_in < float("inf") and 0 <= self.per_million_out < float("inf")):
            raise UsageError(f"prices {self.per_million_in} and {self.per_million_out}; give 0 or more")

    def cost(self, read: int, written: int) -> float:
        """Of so many tokens."""
        return (self.per_million_in * read + self.per_million_out * written) / 1e6


@dataclass(frozen=True)
class ConditionPlan:
    """What one condition will see and cost.

    Attributes:
        name: of the condition.
        contexts, layouts, trials: how many there are.
        longest: tokens of the longest prompt with what is generated.
        read_tokens: prompt tokens that the backend will read: its `tokens` after the run.
        new_tokens: tokens it will generate, fewer where it stops early.
        fold: the stride at which phases are compared.
        smallest_effect: phase SD found with 80 % power; None with too few contexts to say.
        power: of finding a phase SD of `effect`.
        effect: the phase SD that `power` is about.
        memory: of a model on this machine.
        pace: what the calibration measured; None without one.
        seconds: what answering, drawing and writing will take; None without a calibration.
        cost: money.
    """

    name: str
    contexts: int
    layouts: int
    trials: int
    longest: int
    read_tokens: int
    new_tokens: int
    fold: int
    smallest_effect: float | None
    power: float | None
    effect: float
    memory: Memory
    pace: Pace | None
    seconds: float | None
    cost: float


@dataclass(frozen=True)
class RunPlan:
    """What a run will see and cost.

    Attributes:
        conditions: one after the other.
        guess: the assumptions behind the power.
        load_seconds: that loading the models took, and will take the run before it begins.
        seconds: the run from then on; None without a calibration.
        cost: money, the calibration's own included.
    """

    conditions: tuple[ConditionPlan, ...]
    guess: Guess
    load_seconds: float
    seconds: float | None
    cost: float

    @property
    def warnings(self) -> list[str]:
        """What the run will be too small for, in words."""
        few = sorted({plan.contexts for plan in self.conditions if plan.contexts < ENOUGH})
        warnings = [
            f"{n} contexts: intervals and tests hold from {ENOUGH} on; ask more contexts" for n in few
        ]
        weak = [plan.name for plan in self.conditions if plan.power is not None and plan.power < 0.8]
        if weak:
            effect = 100 * self.conditions[0].effect
            warnings.append(f"underpowered for a phase SD of {effect:g} points: {', '.join(weak)}")
        return warnings

    def as_json(self) -> dict[str, Any]:
        """All numbers, as JSON values."""
        return {**asdict(self), "warnings": self.warnings}


def plan_run(
    conditions: Sequence[Condition],
    seed: int,
    *,
    guess: Guess | None = None,
    effect: float = EFFECT,
    prices: Prices | None = None,
    budget: float = BUDGET,
    workers: int = 1,
    report: Report = lambda doing: None,
) -> RunPlan:
    """Work out what `run` with the same conditions and seed will see and cost; nothing is written.

    The trials are drawn as the run will draw them, so that the tokens are exact. Backends are loaded for
    their description and the calibration, one at a time.

    Args:
        conditions: of the run.
        seed: of every draw.
        guess: assumed accuracy and noise, from which the power follows.
        effect: phase SD whose power is reported, as a fraction.
        prices: per million tokens.
        budget: seconds of calibration per condition; 0 for none, and then no token is spent and no time predicted.
        workers: how many processes share the batches.
        report: called with what is being worked out, in words.

    Raises:
        UsageError: for an impossible effect or budget, or what the run itself would refuse.
    """
    if not 0 < effect < 1 or not 0 <= budget < float("inf"):
        raise UsageError(f"effect {effect}, calibration of {budget} s; give a share below 1, and 0 s or more")
    guess, prices = guess or Guess(), prices or Prices()
    dispatcher = Dispatcher([condition.backend for condition in conditions])
    introductions: list[Introduction] = []
    loading = 0.0
    for number, condition in enumerate(conditions):
        report(f"loading {condition.name}")
        started = time.perf_counter()
        introductions.append(dispatcher.introduce(number, condition.protocol.synthetic))
        loading += time.perf_counter() - started
    counted = _count(conditions, seed, introductions, report)
    described = [describe(one, found) for one, found in zip(conditions, introductions, strict=True)]
    plans, spent = [], 0.0
    for number, (condition, counts, fold) in enumerate(
        zip(conditions, counted, folds(described), strict=True)
    ):
        started = time.perf_counter()
        backend = dispatcher.backend(number)
        loading += time.perf_counter() - started  # as in the run, which also loads several models twice
        report(f"calibrating {condition.name}")
        pace = calibrate(backend, condition.protocol, counts.first, budget) if budget else None
        spent += prices.cost(pace.tokens, pace.trials) if pace else 0.0
        smallest, power = _power(condition, counts, fold, guess, effect)
        read = counts.read(share=bool(getattr(backend, "share_prefix", False)))
        plan = ConditionPlan(
            name=condition.name,
            contexts=counts.batches,
            layouts=counts.layouts,
            trials=counts.trials,
            longest=counts.longest,
            read_tokens=read,
            new_tokens=counts.new_tokens,
            fold=fold,
            smallest_effect=smallest,
            power=power,
            effect=effect,
            memory=_memory(condition, counts, introductions[number].description),
            pace=pace,
            seconds=None if pace is None else _seconds(pace, counts, read, workers),
            cost=prices.cost(read, counts.new_tokens),
        )
        plans.append(plan)
    seconds = [plan.seconds for plan in plans if plan.seconds is not None]
    total = sum(seconds) if len(seconds) == len(plans) else None
    return RunPlan(tuple(plans), guess, loading, total, sum(plan.cost for plan in plans) + spent)


def _count(
    conditions: Sequence[Condition], seed: int, introductions: Sequence[Introduction], report: Report
) -> list[Counts]:
    """Counts of every condition; conditions with equal protocols and vocabularies ask the same and are counted once."""
    counted: list[Counts] = []
    kinds = [(one.protocol, found.vocabulary) for one, found in zip(conditions, introductions, strict=True)]
    for number, condition in enumerate(conditions):
        if (same := kinds.index(kinds[number])) < number:
            counted.append(counted[same])
        else:
            report(f"counting {condition.name}")
            batches = planned([condition], seed, [introductions[number].vocabulary])
            counted.append(count(batch for _, batch in batches))
    return counted


def _power(
    condition: Condition, counts: Counts, fold: int, guess: Guess, effect: float
) -> tuple[float | None, float | None]:
    """Smallest detectable effect, and the power of finding the given one."""
    design = identified_fold(counts.table, condition.protocol.moves, fold)
    if counts.table.n_clusters < 4 or not design.identified or len(design.phase_S) < 2:
        return None, None
    noise, phases = planned_noise(counts.table, design, guess), len(design.phase_S)
    return detectable(noise, phases), power_at(effect, noise, phases)


def _memory(condition: Condition, counts: Counts, description: dict[str, Any]) -> Memory:
    """Of a model that is loaded from a folder."""
    settings = condition.backend.settings if isinstance(condition.backend, BackendSpec) else {}
    if settings.get("path") is None or "max_tokens" not in description:
        return UNKNOWN
    return folder_memory(
        Path(settings["path"]),
        dtype=str(settings.get("dtype", "auto")),
        longest=counts.longest,
        max_tokens=description["max_tokens"],
        rows=max(map(len, counts.first)) + counts.layouts,
    )


def _seconds(pace: Pace, counts: Counts, read: int, workers: int) -> float:
    """Answering is shared by the workers; drawing and writing is done by one, meanwhile."""
    answering = pace.seconds_per_token * read / min(workers, counts.batches)
    alone = counts.draw_seconds + pace.seconds_per_trial * counts.trials
    return answering + alone if workers == 1 else max(answering, alone)
