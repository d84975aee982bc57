"""Calibration of every statistic against planted truth: sizes of tests, coverage of intervals, named periods.

    python -m benchmarks.calibration [--runs 400] [--most 2000] [--seed 0] [--only 'S=8'] [--last-line]

Beside the curves: what merely depends on position (a step, a cliff, a saturating trend, a bump) must not be called a
period; a run that loses answers by phase must not be called flat; residues of source and query that act together must
be found.

A size or a coverage outside its bar after `--runs` planted runs is measured again up to `--most` runs in all,
and judged by the share of all of them: with 400 runs one in twenty sound tests would be outside by luck.
Prints a table (not with --last-line), and as its last line one JSON object with the extremes over all cases.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
from tests.statistics.planted import (
    CLUSTERED,
    INDEPENDENT,
    Design,
    Floats,
    flat,
    observe,
    one_bad_phase,
    plant,
    sine,
    slope,
    truth,
    truth_logprob,
)

from phasescope.errors import UsageError
from phasescope.observations import Observations
from phasescope.records import Dropped, Observation
from phasescope.statistics.analysis import analyse
from phasescope.statistics.fold import (
    Fold,
    identified_fold,
    mean_rate,
    phase_effects,
    phase_rates,
    trend_basis,
    within_blocks,
)
from phasescope.statistics.interaction import find_interaction
from phasescope.statistics.intervals import Estimate, clustered_t, clustered_wilson
from phasescope.statistics.missing import find_missing
from phasescope.statistics.period import CANDIDATES, find_period
from phasescope.statistics.permutation import paired_test, permutation_p, quadratic_form
from phasescope.statistics.phase_effect import phase_sd, smallest_effect
from phasescope.statistics.position import position_effects
from phasescope.statistics.split_half import LOWEST, WIDEST, split_half
from phasescope.statistics.steps import find_steps
from phasescope.statistics.table import Outcome, Table
from phasescope.statistics.verdict import judge

DRAWS = 99
"""Permutations per test; p = k/100 has exactly its nominal size at 5 % whatever their number."""


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
        Case("10 clusters, layout SD 1, S=8, flat", flat(8), TEN),
        Case("10 clusters, layout SD 1, S=8, sine 20", sine(8, 0.2), TEN),
        Case("clusters, query moves too, S=8, flat", flat(8), MOVING),
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


TEN = replace(CLUSTERED, clusters=10, layout_sd=1.0)
MOVING = replace(CLUSTERED, query_moves=True)


def aperiodic_cases() -> list[Case]:
    """What depends on position without a period, weak to strong."""
    return [
        Case(f"{kind} of {size} logits", flat(8), replace(CLUSTERED, aperiodic=kind, size=size))
        for kind in ("step", "cliff", "saturating", "bump")
        for size in (0.6, 1.0, 2.0)
    ]


Shares = dict[str, float]
Checks = dict[str, Callable[[], float]]
BARS = {"size": (0.03, 0.07), "coverage": (0.92, 0.98)}


def examine(case: Case, rng: np.random.Generator, chosen: Collection[str] = ()) -> Shares:
    """One planted run: what was rejected, what was covered, and whether the period was named (1 yes, 0 no).

    Keys are `kind outcome statistic`, the kind `size`, `coverage` or `named`; all of them unless some are
    chosen.
    """
    table = plant(case.curve, case.design, rng)
    fold = identified_fold(table, "source", case.stride)
    checks: Checks = {}
    if not case.design.trend:
        checks |= _coverages(table, "accuracy", fold, truth(case.curve, case.design), rng)
        checks |= _coverages(table, "logprob", fold, truth_logprob(case.curve, case.design), rng)
    if case.flat:
        checks |= _sizes(table, "accuracy", fold, rng)
        checks |= _sizes(table, "logprob", fold, rng)
    elif case.strong:
        checks["named accuracy period"] = lambda: float(
            find_period(table, "accuracy", "source", CANDIDATES, rng, 499).stride == case.stride
        )
    return {key: check() for key, check in checks.items() if not chosen or key in chosen}


def _coverages(
    table: Table, outcome: Outcome, fold: Fold, true_S: Floats, rng: np.random.Generator
) -> Checks:
    """Whether each interval holds what was planted; the mean over phases or residues for their rates."""
    effects, stride = phase_effects(table, outcome, fold), fold.modulus
    interval = clustered_t if outcome == "logprob" else clustered_wilson
    checks: Checks = {
        "phase_sd": lambda: _holds(phase_sd(effects), float(np.std(true_S))),
        "split_half_gap": lambda: _holds(
            split_half(effects, WIDEST, rng).estimate.within(0, np.inf), float(np.ptp(true_S))
        ),
        "mean": lambda: _share_held(interval(mean_rate(table, outcome)), np.array([true_S.mean()])),
        "phase_rate": lambda: _share_held(interval(phase_rates(table, outcome, "source", stride)[1]), true_S),
    }
    if outcome == "accuracy" and 24 % stride == 0:
        residues, rate = phase_rates(table, outcome, "source", 24)
        checks["residue_rate"] = lambda: _share_held(interval(rate), true_S[residues % stride])
        checks["worst_residue"] = lambda: _holds(split_half(rate, LOWEST, rng).estimate, float(true_S.min()))
    return {f"coverage {outcome} {name}": check for name, check in checks.items()}


def _sizes(table: Table, outcome: Outcome, fold: Fold, rng: np.random.Generator) -> Checks:
    """Whether each test raises a false alarm at 5 %."""
    checks: Checks = {
        "phase_test": lambda: _alarm(_phase_test(table, outcome, fold, rng)),
        "paired_test": lambda: _alarm(paired_test(table, outcome, "source", fold.modulus, rng, DRAWS)[0]),
        "period": lambda: _alarm(find_period(table, outcome, "source", CANDIDATES, rng, DRAWS).p_value),
        "steps": lambda: _alarm(_steps_p(table, outcome, rng)),
    }
    if np.ptp(table.query_CLQ, axis=1).any():
        checks["interaction"] = lambda: _alarm(find_interaction(table, outcome, fold, rng, DRAWS).p_value)
    return {f"size {outcome} {name}": check for name, check in checks.items()}


def _alarm(p_value: float | None) -> float:
    return float(p_value is not None and p_value <= 0.05)


def _steps_p(table: Table, outcome: Outcome, rng: np.random.Generator) -> float | None:
    trend = trend_basis(table, "source")
    values_CLQ = within_blocks(table.outcomes[outcome], table, trend)
    return find_steps(table, outcome, "source", values_CLQ, trend, rng, DRAWS).p_value


def false_period(case: Case, rng: np.random.Generator) -> float:
    """Whether an aperiodic effect is called a period, by the rule of a report."""
    table = plant(case.curve, case.design, rng)
    found = position_effects(table, "accuracy", "source", CANDIDATES, rng, DRAWS)
    return float(found.period.stride is not None)


DROPS = ("all of a bad phase", "60 % of a bad phase", "its wrong answers", "wrong answers of all phases")


def false_flat(drop: str, rng: np.random.Generator) -> float:
    """Whether a run is called flat whose bad phase (85 % elsewhere, 35 % there) lost answers."""
    curve = np.where(np.arange(8) == 5, 0.35, 0.85)
    observations = observe(plant(curve, replace(CLUSTERED, layouts=16), rng))
    bad = np.array([o.source_position % 8 == 5 for o in observations])
    wrong = np.array([o.score == 0 for o in observations])
    lost = {
        "all of a bad phase": bad,
        "60 % of a bad phase": bad & (rng.random(len(bad)) < 0.6),
        "its wrong answers": bad & wrong,
        "wrong answers of all phases": wrong,
    }[drop]
    kept = Observations(o for o, gone in zip(observations, lost, strict=True) if not gone)
    dropped = [_dropped(o) for o, gone in zip(observations, lost, strict=True) if gone]
    missing = find_missing(kept, dropped, stride=8, coordinate="source", rng=rng, draws=DRAWS)
    try:
        findings = analyse(kept, stride=8, rng=rng, draws=DRAWS)
    except UsageError:  # nothing can be compared, and nothing is said
        return 0.0
    return float(judge([*findings, missing]).state == "flat")


def _dropped(one: Observation) -> Dropped:
    return Dropped(
        condition=one.condition,
        trial=one.trial,
        cluster=one.cluster,
        block=one.block,
        layout=one.layout,
        source_position=one.source_position,
        query_position=one.query_position,
        dropped="no answer",
    )


def interaction_found(rng: np.random.Generator) -> float:
    """Whether a wave of one logit in (source + query) mod 8, flat in either, is found."""
    table = plant(flat(8), replace(MOVING, together=1.0), rng)
    fold = identified_fold(table, "source", 8)
    return _alarm(find_interaction(table, "accuracy", fold, rng, DRAWS).p_value)


def shares(name: str, runs: int, seed: int, once: Callable[[np.random.Generator], float]) -> float:
    """Mean over planted runs."""
    return float(np.mean([once(np.random.default_rng([seed, *name.encode(), run])) for run in range(runs)]))


def _phase_test(table: Table, outcome: Outcome, fold: Fold, rng: np.random.Generator) -> float:
    """The p-value of the phase test."""
    values_CLQ = within_blocks(table.outcomes[outcome], table, fold.trend_NK)
    sum_DS = fold.permuted(values_CLQ, rng, DRAWS)
    return permutation_p(quadratic_form(sum_DS, fold.inverse_SS))


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
    size = float(0.1 * smallest / np.std(truth(sine(stride, 0.1), design)))
    found = []
    for _ in range(runs):
        table = plant(sine(stride, size), design, rng)
        fold = identified_fold(table, "source", stride)
        found.append(_alarm(_phase_test(table, "accuracy", fold, rng)))
    return float(np.mean(found))


def calibrate(case: Case, runs: int, seed: int, most: int = 0) -> Shares:
    """Mean over runs of everything that is examined; over `most` runs for what is outside its bar by then."""

    def examined(run: int, chosen: Collection[str] = ()) -> Shares:
        return examine(case, np.random.default_rng([seed, *case.name.encode(), run]), chosen)

    results = [examined(run) for run in range(runs)]
    shares = {key: float(np.mean([result[key] for result in results])) for key in results[0]}
    outside = [key for key, share in shares.items() if not _within(key, share)]
    if outside and most > runs:
        results += [examined(run, outside) for run in range(runs, most)]
        shares |= {key: float(np.mean([result[key] for result in results])) for key in outside}
    return shares


def _within(key: str, share: float) -> bool:
    """Whether a share is inside its bar; a name has none."""
    low, high = BARS.get(key.split(" ")[0], (0.0, 1.0))
    return low <= share <= high


def rows(name: str, shares: Shares) -> Iterator[str]:
    """Lines of the table: one per kind and outcome of a case."""
    kinds: dict[str, list[str]] = {}
    for key, share in shares.items():
        kind, outcome, statistic = key.split(" ")
        mark = "" if _within(key, share) else " (!)"
        kinds.setdefault(f"{kind} | {outcome}", []).append(f"{statistic} {100 * share:.1f}{mark}")
    for kind, cells in kinds.items():
        yield f"| {name} | {kind} | {', '.join(cells)} |"


def extremes(results: dict[str, Shares]) -> dict[str, float]:
    """Smallest and largest size and coverage over all cases, and the smallest share of named periods.

    Under a depth trend only the largest size counts: a test may be quieter there than it promises. What none
    of the cases examines is left out.
    """
    found = [(name, key, share) for name, shares in results.items() for key, share in shares.items()]
    size = [share for name, key, share in found if key.startswith("size") and "trend" not in name]
    loud = [share for _, key, share in found if key.startswith("size")]
    coverage = [share for _, key, share in found if key.startswith("coverage")]
    named = [share for _, key, share in found if key.startswith("named")]
    ends = {
        "size_min": sorted(size)[:1],
        "size_max": sorted(loud)[-1:],
        "coverage_min": sorted(coverage)[:1],
        "coverage_max": sorted(coverage)[-1:],
        "named_min": sorted(named)[:1],
    }
    return {name: share for name, shares in ends.items() for share in shares}


def _further(runs: int, seed: int, told: Callable[[str], None]) -> dict[str, float]:
    """False periods, false flats, and the power to find an interaction."""
    periods = {
        case.name: shares(case.name, runs, seed, functools.partial(false_period, case))
        for case in aperiodic_cases()
    }
    flats = {drop: shares(drop, runs, seed, functools.partial(false_flat, drop)) for drop in DROPS}
    for name, share in periods.items():
        told(f"| {name} | called a period | accuracy | {100 * share:.1f} |")
    for name, share in flats.items():
        told(f"| lost: {name} | called flat | accuracy | {100 * share:.1f} |")
    return {
        "cliff_false_periods": max(periods.values()),
        "dropout_false_flat": max(flats.values()),
        "interaction_power": shares("interaction", runs, seed, interaction_found),
    }


HEAD = "| case | kind | outcome | statistics, % |\n|---|---|---|---|"


def main() -> None:
    """Calibrate every case, print the table as it grows, and the extremes as JSON at the end."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=400, help="planted runs per case")
    parser.add_argument(
        "--most", type=int, default=2000, help="planted runs where a share is outside its bar"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--last-line", action="store_true", help="print the JSON object alone")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if arguments.only in case.name]
    told = (lambda line: None) if arguments.last_line else functools.partial(print, flush=True)
    told(HEAD)
    results: dict[str, Shares] = {}
    start = time.monotonic()
    for done, case in enumerate(chosen, start=1):
        results[case.name] = calibrate(case, arguments.runs, arguments.seed, arguments.most)
        told("\n".join(rows(case.name, results[case.name])))
        seconds = time.monotonic() - start
        left = seconds / done * (len(chosen) - done)
        print(
            f"{done}/{len(chosen)} cases, {seconds:.0f} s, about {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
    further = _further(arguments.runs, arguments.seed, told)
    rng = np.random.default_rng(arguments.seed)
    powers = {str(stride): power(CLUSTERED, stride, arguments.runs, rng) for stride in (2, 4, 8)}
    print(
        json.dumps(
            {
                "cases": len(results) + len(aperiodic_cases()) + len(DROPS) + 1,
                **extremes(results),
                **further,
                "power_at_smallest_effect": powers,
                "runs": arguments.runs,
                "most": arguments.most,
            }
        )
    )


if __name__ == "__main__":
    main()
