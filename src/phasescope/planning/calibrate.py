"""How long a run will take, from a few forwards of its own first batches on the backend that will answer it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..backends import Backend
from ..backends.prefixes import contexts
from ..protocols import Batch, Protocol
from ..records import Reply, Trial

REPEATS = 5
"""Measurements after which more would not help."""
SERVED = 8
"""Prompts that a backend is sent at a time if it doesn't say how many it answers at once."""
SERVED_REPEATS = 2
"""Measurements of a backend that reads every prompt whole, and may charge for each."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured.

    Attributes:
        seconds_per_token: of prompt, everything that answering takes included.
        seconds_per_trial: of scoring and writing down.
        tokens: prompt tokens that measuring itself read.
        trials: how many were answered for it.
        seconds: that it took.
    """

    seconds_per_token: float
    seconds_per_trial: float
    tokens: int
    trials: int
    seconds: float


def calibrate(backend: Backend, protocol: Protocol, batches: Sequence[Batch], budget: float) -> Pace:
    """Ask the backend some of the run's own trials, first to warm up and then with the clock running.

    One layout of the first batch shows what the whole batch takes. If several batches fit the budget, whole
    ones are measured, because they are read in forwards of several layouts; else single layouts, as long
    as the budget lasts, but at least one. A backend that reads every prompt whole is sent one prompt, and then
    two groups of twice as many as it answers at once. What counts is the median.

    Args:
        backend: loaded.
        protocol: that scores the replies.
        batches: the first of the run.
        budget: seconds that measuring may take; what has begun is finished.
    """
    share = bool(getattr(backend, "share_prefix", False))
    first = batches[0]
    parts: list[Sequence[Trial]]
    if share:
        layouts = dict.fromkeys(trial.layout for trial in first)
        parts = [[trial for trial in first if trial.layout == layout] for layout in layouts]
    else:
        size = 2 * max(1, getattr(backend, "concurrency", SERVED // 2))
        parts = [first[start : start + size] for start in range(0, len(first), size)]
    started, before, answered = time.perf_counter(), backend.tokens, 0

    def measure(trials: Sequence[Trial]) -> float:
        """Seconds per prompt token."""
        nonlocal answered
        begun = time.perf_counter()
        backend.answer(trials)
        answered += len(trials)
        return (time.perf_counter() - begun) / tokens_read(trials, share=share)

    measure(parts[0] if share else parts[0][:1])
    rates = [measure(parts[1 % len(parts)])]
    whole = rates[0] * tokens_read(first, share=share)
    if share and 2 * whole < budget:
        measure(first)
        rates, parts = [], list(batches)
    for turn in range(len(rates), REPEATS if share else SERVED_REPEATS):
        if rates and time.perf_counter() - started > budget:
            break
        rates.append(measure(parts[(turn + 1) % len(parts)]))
    seconds = time.perf_counter() - started
    scoring = _scoring(protocol, first)
    return Pace(statistics.median(rates), scoring, backend.tokens - before, answered, seconds)


def tokens_read(trials: Sequence[Trial], *, share: bool) -> int:
    """Prompt tokens of some trials."""
    return sum(context.tokens for context in contexts(trials, share=share))


def _scoring(protocol: Protocol, batch: Batch) -> float:
    """Seconds per trial of making an observation and its line."""
    few = batch[:64]
    begun = time.perf_counter()
    for trial in few:
        candidates = (0.0,) * len(trial.candidate_ids) or None
        reply = Reply(trial.answer_ids, len(trial.prompt_ids), 0.0, candidates, "")
        protocol.observe(trial, reply, "plan").model_dump_json(exclude_none=True)
    return (time.perf_counter() - begun) / len(few)
