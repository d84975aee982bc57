"""Calibration of every statistic against planted truth: sizes of tests, coverage of intervals, named periods.

    python -m benchmarks.calibration [--runs 400] [--seed 0] [--only 'S=8']

Prints a table, and as its last line one JSON object with the extremes over all cases.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
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

from phasescope.statistics.fold import (
    fold_table,
    identified_fold,
    mean_rate,
    phase_effects,
    phase_rates,
    within_blocks,
)
from phasescope.statistics.intervals import Estimate, clustered_t, clustered_wilson
from phasescope.statistics.paired import paired_test
from phasescope.statistics.period import CANDIDATES, find_period
from phasescope.statistics.permutation import permutation_p, permuted_sums, quadratic_form
from phasescope.statistics.phase_effect import phase_sd, smallest_effect
from phasescope.statistics.split_half import LOWEST, WIDEST, split_half
from phasescope.statistics.table import Outcome, Table

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
LONG = Design(layouts=128, questions=2)


def cases() -> list[Case]:
    """Curves × strides × designs."""
    alone, together = INDEPENDENT, CLUSTERED
    return [
        Case("independent, S=2, slope 10", slope(2, 0.1), alone, strong=True),
        Case("independent, S=4, slope 5", slope(4, 0.05), alone),
        Case("independent, S=4, one bad phase 20", one_bad_phase(4, 0.2), alone, strong=True),
        Case("independent, S=8, flat", flat(8), alone),
        Case("independent, S=8, slope 20", slope(8, 0.2), alone),
        Case("independent, S=8, sine 20", sine(8, 0.2), alone, strong=True),
        Case("independent, S=8, flat at the ceiling", flat(8, 0.98), alone),
        Case(
            "independent, S=8, one bad phase 30 at the ceiling",
            one_bad_phase(8, 0.3, 0.98),
            alone,
            strong=True,
        ),
        Case("independent, depth trend, S=8 flat", flat(8), replace(alone, trend=0.02)),
        Case("clusters, S=2, flat", flat(2), together),
        Case("clusters, S=2, slope 10", slope(2, 0.1), together, strong=True),
        Case("clusters, S=4, slope 5", slope(4, 0.05), together),
        Case("clusters, S=4, one bad phase 20", one_bad_phase(4, 0.2), together, strong=True),
        Case("clusters, S=8, flat", flat(8), together),
        Case("clusters, S=8, slope 20", slope(8, 0.2), together),
        Case("clusters, S=8, sine 20", sine(8, 0.2), together, strong=True),
        Case("clusters, S=8, flat at the ceiling", flat(8, 0.98), together),
        Case("clusters, S=8, one bad phase 8 at the ceiling", one_bad_phase(8, 0.08, 0.98), together),
        Case(
            "clusters, S=8, one bad phase 30 at the ceiling",
            one_bad_phase(8, 0.3, 0.98),
            together,
            strong=True,
        ),
        Case("clusters, depth trend, S=8 flat", flat(8), replace(together, trend=0.02)),
        Case("clusters, depth trend, S=8 sine 20", sine(8, 0.2), replace(together, trend=0.02), strong=True),
        Case("clusters, 48 questions, S=8, flat", flat(8), replace(together, questions=48)),
        Case("clusters, own layouts, S=6, flat", flat(6), replace(together, own_layouts=True)),
        Case(
            "clusters, own layouts, S=6, slope 20",
            slope(6, 0.2),
            replace(together, own_layouts=True),
            strong=True,
        ),
        Case("clusters, S=5, slope 20", slope(5, 0.2), together, strong=True),
        Case("clusters, 32 layouts, S=16, flat", flat(16), WIDE),
        Case("clusters, 32 layouts, S=16, sine 40", sine(16, 0.4), WIDE, strong=True),
        Case("clusters, 32 layouts, S=16, one bad phase 40", one_bad_phase(16, 0.4), WIDE, strong=True),
        Case("clusters, 128 layouts, S=128, flat", flat(128), LONG),
        Case("clusters, 128 layouts, S=128, slope 20", slope(128, 0.2), LONG),
        Case("clusters, 128 layouts, S=128, one bad phase 60", one_bad_phase(128, 0.6), LONG),
    ]


Shares = dict[str, float]
BARS = {"size": (0.03, 0.07), "coverage": (0.92, 0.98)}


def examine(case: Case, rng: np.random.Generator, draws: int = DRAWS) -> Shares:
    """One planted run: what was rejected, what was covered, and whether the period was named (1 yes, 0 no).

    Keys are `kind outcome statistic`, the kind `size`, `coverage` or `named`.
    """
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
        shares["named accuracy period"] = float(found.stride == case.stride)
    return shares


def _covered(case: Case, table: Table, outcome: Outcome, true_S: Floats, rng: np.random.Generator) -> Shares:
    """Whether each interval holds what was planted; the mean over phases or residues for their rates."""
    effects = phase_effects(table, outcome, identified_fold(table, "source", case.stride))
    interval = clustered_t if outcome == "logprob" else clustered_wilson
    shares = {
        "phase_sd": _holds(phase_sd(effects), float(np.std(true_S))),
        "split_half_gap": _holds(
            split_half(effects, WIDEST, rng).estimate.within(0, 9), float(np.ptp(true_S))
        ),
        "mean": _share_held(interval(mean_rate(table, outcome)), np.array([true_S.mean()])),
        "phase_rate": _share_held(interval(phase_rates(table, outcome, "source", case.stride)[1]), true_S),
    }
    if outcome == "accuracy" and 24 % case.stride == 0:
        residues, rate = phase_rates(table, outcome, "source", 24)
        shares["residue_rate"] = _share_held(interval(rate), true_S[residues % case.stride])
        shares["worst_residue"] = _holds(split_half(rate, LOWEST, rng).estimate, float(true_S.min()))
    return {f"coverage {outcome} {name}": share for name, share in shares.items()}


def _rejected(case: Case, table: Table, outcome: Outcome, rng: np.random.Generator, draws: int) -> Shares:
    """Whether each test raises a false alarm at 5 %."""
    design = identified_fold(table, "source", case.stride)
    plain = fold_table(table, "source", case.stride, design.trend_NK[:, :0])
    values_CLQ = within_blocks(table.outcomes[outcome], table, design.trend_NK)
    sum_DS = permuted_sums(values_CLQ, design.column_NS, rng, draws)
    p = {
        "phase_test": permutation_p(quadratic_form(sum_DS, design.inverse_SS)),
        "paired_test": paired_test(table, outcome, plain, rng, draws).p_value,
        "period": find_period(table, outcome, "source", CANDIDATES, rng, draws).p_value,
    }
    return {f"size {outcome} {name}": float(value is not None and value <= 0.05) for name, value in p.items()}


def _holds(estimate: Estimate, true: float) -> float:
    if estimate.low is None or estimate.high is None:
        return 0.0
    return float(estimate.low - 1e-12 <= true <= estimate.high + 1e-12)


def _share_held(ends: tuple[Floats, Floats], true_R: Floats) -> float:
    return float(np.mean((ends[0] <= true_R) & (true_R <= ends[1])))


def power(design: Design, stride: int, runs: int, rng: np.random.Generator) -> float:
    """Share of runs in which the phase test finds a wave of the smallest detectable effect (0.8 promised)."""
    flat_table = plant(flat(stride), design, rng)
    smallest = smallest_effect(
        phase_effects(flat_table, "accuracy", identified_fold(flat_table, "source", stride))
    )
    assert smallest is not None
    size = 0.1 * smallest / np.std(truth(sine(stride, 0.1), design))
    found = []
    for _ in range(runs):
        table = plant(sine(stride, size), design, rng)
        fold = identified_fold(table, "source", stride)
        values_CLQ = within_blocks(table.outcomes["accuracy"], table, fold.trend_NK)
        sum_DS = permuted_sums(values_CLQ, fold.column_NS, rng, DRAWS)
        found.append(permutation_p(quadratic_form(sum_DS, fold.inverse_SS)) <= 0.05)
    return float(np.mean(found))


def calibrate(case: Case, runs: int, seed: int) -> Shares:
    """Mean over runs of everything that is examined; a case draws the same runs whatever else is examined."""
    seeds = [seed, *case.name.encode()]
    examined = [examine(case, np.random.default_rng([*seeds, run])) for run in range(runs)]
    return {key: float(np.mean([shares[key] for shares in examined])) for key in examined[0]}


def rows(name: str, shares: Shares) -> Iterator[str]:
    """Lines of the table: one per kind and outcome of a case."""
    kinds: dict[str, list[str]] = {}
    for key, share in shares.items():
        kind, outcome, statistic = key.split(" ")
        low, high = BARS.get(kind, (0.95, 1.0))
        mark = "" if low <= share <= high else " (!)"
        kinds.setdefault(f"{kind} | {outcome}", []).append(f"{statistic} {100 * share:.1f}{mark}")
    for kind, cells in kinds.items():
        yield f"| {name} | {kind} | {', '.join(cells)} |"


def extremes(results: dict[str, Shares]) -> dict[str, float]:
    """Smallest and largest size and coverage over all cases, and the smallest share of named periods.

    Under a depth trend only the largest size counts: a test may be quieter there than it promises.
    """
    found = [(name, key, share) for name, shares in results.items() for key, share in shares.items()]
    size = [share for name, key, share in found if key.startswith("size") and "trend" not in name]
    loud = [share for _, key, share in found if key.startswith("size")]
    coverage = [share for _, key, share in found if key.startswith("coverage")]
    named = [share for _, key, share in found if key.startswith("named")]
    return {
        "size_min": min(size),
        "size_max": max(loud),
        "coverage_min": min(coverage),
        "coverage_max": max(coverage),
        "named_min": min(named),
    }


HEAD = "| case | kind | outcome | statistics, % |\n|---|---|---|---|"


def main() -> None:
    """Calibrate every case, print the table as it grows, and the extremes as JSON at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=400, help="planted runs per case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if arguments.only in case.name]
    print(HEAD, flush=True)
    results: dict[str, Shares] = {}
    start = time.monotonic()
    for done, case in enumerate(chosen, start=1):
        results[case.name] = calibrate(case, arguments.runs, arguments.seed)
        print("\n".join(rows(case.name, results[case.name])), flush=True)
        seconds = time.monotonic() - start
        left = seconds / done * (len(chosen) - done)
        print(
            f"{done}/{len(chosen)} cases, {seconds:.0f} s, about {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
    rng = np.random.default_rng(arguments.seed)
    powers = {str(stride): power(CLUSTERED, stride, arguments.runs, rng) for stride in (2, 4, 8)}
    print(json.dumps({**extremes(results), "power_at_smallest_effect": powers, "runs": arguments.runs}))


if __name__ == "__main__":
    main()
