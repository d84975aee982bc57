"""Calibration of every statistic against planted truth: sizes of tests, coverage of intervals, named periods.

    python -m benchmarks.calibration [--runs 1000] [--seed 0] [--table docs/calibration-table.md]

Prints a table, and as its last line one JSON object with the extremes over all cases.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from phasescope.statistics.fold import fold_table, identified_fold, mean_rate, phase_effects, phase_rates
from phasescope.statistics.intervals import clustered_t, clustered_wilson
from phasescope.statistics.paired import paired_test
from phasescope.statistics.period import CANDIDATES, find_period
from phasescope.statistics.permutation import permutation_p, permuted_sums, quadratic_form
from phasescope.statistics.phase_effect import LOWEST, WIDEST, phase_sd, split_half
from phasescope.statistics.table import Outcome, Table
from tests.statistics.planted import (
    CLUSTERED,
    INDEPENDENT,
    Design,
    Floats,
    flat,
    one_bad_phase,
    plant,
    sine,
    slope,
    truth,
    truth_logprob,
)

DRAWS = 199
"""Permutations per test; p = k/200 has exactly its nominal size at 5 % whatever their number."""


@dataclass(frozen=True)
class Case:
    """A planted curve under a design; `strong` is one whose period must be named."""

    name: str
    curve: Floats
    design: Design
    strong: bool = False

    @property
    def stride(self) -> int:
        """Of the planted curve."""
        return len(self.curve)

    @property
    def flat(self) -> bool:
        """Whether every test must be silent."""
        return bool(np.ptp(self.curve) == 0)


WIDE = Design(layouts=32, questions=6)
LONG = Design(layouts=128, questions=3)
OWN = replace(CLUSTERED, own_layouts=True)
CROWDED = replace(CLUSTERED, questions=48)


def cases() -> list[Case]:
    """Curves × strides × designs."""
    found = []
    for label, design in (("independent", INDEPENDENT), ("clusters", CLUSTERED)):
        trend = replace(design, trend=0.02)
        found += [
            Case(f"{label}, S=2, flat", flat(2), design),
            Case(f"{label}, S=2, slope 10", slope(2, 0.1), design, strong=True),
            Case(f"{label}, S=4, flat", flat(4), design),
            Case(f"{label}, S=4, slope 5", slope(4, 0.05), design),
            Case(f"{label}, S=4, slope 20", slope(4, 0.2), design, strong=True),
            Case(f"{label}, S=4, one bad phase 20", one_bad_phase(4, 0.2), design, strong=True),
            Case(f"{label}, S=8, flat", flat(8), design),
            Case(f"{label}, S=8, slope 5", slope(8, 0.05), design),
            Case(f"{label}, S=8, slope 20", slope(8, 0.2), design),
            Case(f"{label}, S=8, sine 20", sine(8, 0.2), design, strong=True),
            Case(f"{label}, S=8, one bad phase 30", one_bad_phase(8, 0.3), design, strong=True),
            Case(f"{label}, S=8, flat at the ceiling", flat(8, 0.98), design),
            Case(f"{label}, S=8, one bad phase 8 at the ceiling", one_bad_phase(8, 0.08, 0.98), design),
            Case(
                f"{label}, S=8, one bad phase 30 at the ceiling",
                one_bad_phase(8, 0.3, 0.98),
                design,
                strong=True,
            ),
            Case(f"{label}, depth trend, S=8 flat", flat(8), trend),
            Case(f"{label}, depth trend, S=8 sine 20", sine(8, 0.2), trend, strong=True),
        ]
    found += [
        Case("clusters, 48 questions, S=8, flat", flat(8), CROWDED),
        Case("clusters, 48 questions, S=8, sine 20", sine(8, 0.2), CROWDED, strong=True),
        Case("clusters, own layouts, S=6, flat", flat(6), OWN),
        Case("clusters, own layouts, S=6, slope 20", slope(6, 0.2), OWN, strong=True),
        Case("clusters, S=5, slope 20", slope(5, 0.2), CLUSTERED, strong=True),
        Case("clusters, 32 layouts, S=16, flat", flat(16), WIDE),
        Case("clusters, 32 layouts, S=16, sine 20", sine(16, 0.2), WIDE, strong=True),
        Case("clusters, 32 layouts, S=16, one bad phase 40", one_bad_phase(16, 0.4), WIDE, strong=True),
        Case("clusters, 128 layouts, S=128, flat", flat(128), LONG),
        Case("clusters, 128 layouts, S=128, slope 20", slope(128, 0.2), LONG),
        Case("clusters, 128 layouts, S=128, one bad phase 60", one_bad_phase(128, 0.6), LONG),
    ]
    return found


Shares = dict[str, float]


def examine(case: Case, rng: np.random.Generator, draws: int = DRAWS) -> Shares:
    """One planted run: what was rejected, what was covered, and which period was named (1 yes, 0 no)."""
    table = plant(case.curve, case.design, rng)
    shares: Shares = {}
    if not case.design.trend:
        shares |= _covered(case, table, "accuracy", truth(case.curve, case.design), rng)
        shares |= _covered(case, table, "logprob", truth_logprob(case.curve, case.design), rng)
    if case.flat:
        shares |= _rejected(case, table, "accuracy", rng, draws)
        shares |= _rejected(case, table, "logprob", rng, draws)
    elif case.strong:
        found = find_period(table, "accuracy", "source", CANDIDATES, rng, max(draws, 499))
        shares["named"] = float(found.stride == case.stride)
    return shares


def _covered(case: Case, table: Table, outcome: Outcome, true_S: Floats, rng: np.random.Generator) -> Shares:
    effects = phase_effects(table, outcome, identified_fold(table, "source", case.stride))
    spread, gap = phase_sd(effects), split_half(effects, WIDEST, rng)
    shares = {
        "phase_sd": _holds(spread.low, spread.high, float(np.std(true_S))),
        "split_half_gap": _holds(gap.estimate.low, gap.estimate.high, float(gap.weight_S @ true_S)),
        "split_half_gap against the largest": _holds(
            gap.estimate.low, gap.estimate.high, float(np.ptp(true_S))
        ),
        "phase_sd bias": (spread.value or 0.0) - float(np.std(true_S)),
    }
    interval = clustered_t if outcome == "logprob" else clustered_wilson
    mean, by_phase = mean_rate(table, outcome), phase_rates(table, outcome, "source", case.stride)[1]
    for name, rate, true in (("mean", mean, np.array([true_S.mean()])), ("phase_rate", by_phase, true_S)):
        low, high = interval(rate)
        shares[name] = float(np.mean((low <= true) & (true <= high)))
    if outcome == "accuracy":
        residue, rate = phase_rates(table, outcome, "source", 24)
        at_residue = true_S[residue % case.stride] if 24 % case.stride == 0 else np.full(len(residue), np.nan)
        low, high = interval(rate)
        worst = split_half(rate, LOWEST, rng)
        if 24 % case.stride == 0:
            shares["residue_rate"] = float(np.mean((low <= at_residue) & (at_residue <= high)))
            true = float(worst.weight_S @ at_residue)
            shares["worst_residue"] = _holds(worst.estimate.low, worst.estimate.high, true)
    return {f"{outcome}: {name}": share for name, share in shares.items()}


def _rejected(case: Case, table: Table, outcome: Outcome, rng: np.random.Generator, draws: int) -> Shares:
    design = identified_fold(table, "source", case.stride)
    plain = fold_table(table, "source", case.stride, design.trend_NK[:, :0])
    from phasescope.statistics.fold import within_blocks

    values = within_blocks(table.outcomes[outcome], table, design.trend_NK)
    sums = permuted_sums(values, design.column_NS, rng, draws)
    p = {
        "phase_test": permutation_p(quadratic_form(sums, design.inverse_SS)),
        "paired_test": paired_test(table, outcome, plain, rng, draws).p_value,
        "period": find_period(table, outcome, "source", CANDIDATES, rng, draws).p_value,
    }
    return {f"{outcome}: {name}": float(value is not None and value <= 0.05) for name, value in p.items()}


def _holds(low: float | None, high: float | None, true: float) -> float:
    return float(low is not None and high is not None and low - 1e-12 <= true <= high + 1e-12)
