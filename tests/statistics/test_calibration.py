"""A short calibration of every statistic; the long one is `python -m benchmarks.calibration`."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.calibration import Case, calibrate, cases, extremes, power, rows
from scipy import stats

from phasescope.statistics.fold import mean_rate
from phasescope.statistics.intervals import wilson
from tests.statistics.planted import CLUSTERED, Design, one_bad_phase

RUNS = 40
DOUBT = 0.002
"""Chance that a sound statistic exceeds one limit; the seeds are fixed, so that one draw decides once."""

CHOSEN = [
    "independent, S=4, one bad phase 20",
    "independent, S=8, flat",
    "clusters, S=2, flat",
    "clusters, S=8, sine 20",
    "clusters, S=8, one bad phase 30 at the ceiling",
    "clusters, depth trend, S=8 flat",
    "clusters, own layouts, S=6, slope 20",
]


def case(name: str) -> Case:
    """The case of that name."""
    return next(case for case in cases() if case.name == name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_sizes_and_coverages_are_as_promised(name):
    """False alarms and missed truths are no more than binomial luck at 5 % allows."""
    most = stats.binom.isf(DOUBT, RUNS, 0.05) / RUNS
    for key, share in calibrate(case(name), RUNS, seed=7).items():
        wrong = share if key.startswith("size") else 1 - share
        assert wrong <= most, (key, share)


def test_a_broken_interval_would_be_noticed():
    """Plain Wilson, which takes the trials of a context as independent, fails the same bar."""
    from tests.statistics.planted import flat, plant, truth

    rng, true = np.random.default_rng(0), float(truth(flat(8), CLUSTERED).mean())
    missed = 0
    for _ in range(RUNS):
        rate = mean_rate(plant(flat(8), CLUSTERED, rng), "accuracy")
        low, high = wilson(rate.rate_R, rate.trials_R)
        missed += not low[0] <= true <= high[0]
    assert missed > stats.binom.isf(DOUBT, RUNS, 0.05)


@pytest.mark.slow
def test_the_smallest_detectable_effect_is_detected_as_often_as_it_says():
    """Planted at that size, a wave is found in about 80 % of the runs."""
    assert 0.55 <= power(CLUSTERED, 8, 40, np.random.default_rng(3)) <= 0.95


def test_the_benchmark_reports_what_it_found():
    """Each case becomes rows of the table, and the extremes leave a quiet test under a trend alone."""
    small = Case("x", one_bad_phase(4, 0.3), Design(clusters=6, questions=2), strong=True)
    shares = calibrate(small, 2, seed=0)
    assert all(0 <= share <= 1 for share in shares.values())
    assert all(line.startswith("| x | ") for line in rows("x", shares))
    found = extremes(
        {
            "a": {"size accuracy p": 0.05, "coverage accuracy c": 0.95, "named accuracy period": 1.0},
            "depth trend": {"size accuracy p": 0.0},
        }
    )
    assert (found["size_min"], found["size_max"], found["coverage_min"]) == (0.05, 0.05, 0.95)
