"""Intervals of rates against statsmodels, and what clusters do to them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from phasescope.statistics.intervals import Estimate, clustered_t, clustered_wilson, rates, wilson


@pytest.mark.parametrize(("right", "trials"), [(0, 7), (3, 10), (599, 600), (50, 50)])
def test_wilson_equals_statsmodels(right, trials):
    """The plain interval agrees to 12 digits, at the edges as well."""
    low, high = wilson(np.array([right / trials]), np.array([float(trials)]))
    expected = proportion_confint(right, trials, method="wilson")
    assert (low[0], high[0]) == pytest.approx(expected, abs=1e-12)


def clustered_data(rng, clusters=30, sd=1.0):
    """Right answers of unequal clusters that differ in difficulty."""
    sizes = rng.integers(5, 40, clusters)
    p = 1 / (1 + np.exp(-0.5 - sd * rng.standard_normal(clusters)))
    return [rng.random(n) < q for n, q in zip(sizes, p, strict=True)]


def test_standard_error_equals_a_cluster_robust_regression(rng):
    """Of a mean it is the sandwich of statsmodels, its factor for few clusters included."""
    data = clustered_data(rng)
    group = np.repeat(np.arange(len(data)), [len(d) for d in data])
    frame = pd.DataFrame({"y": np.concatenate(data).astype(float), "one": 1.0})
    fit = sm.OLS(frame.y, frame[["one"]]).fit(cov_type="cluster", cov_kwds={"groups": group})
    found = rates(np.array([[d.sum()] for d in data], float), np.array([[len(d)] for d in data], float))
    assert found.rate_R[0] == pytest.approx(fit.params["one"])
    assert found.se[0] == pytest.approx(fit.bse["one"])


def test_clustered_wilson_uses_the_trials_that_the_clusters_are_worth(rng):
    """It is Wilson's interval at n / deff with a t quantile, wider than the plain one."""
    data = clustered_data(rng)
    found = rates(np.array([[d.sum()] for d in data], float), np.array([[len(d)] for d in data], float))
    p, n = found.rate_R, found.trials_R
    worth = p * (1 - p) / found.se**2
    low, high = clustered_wilson(found)
    assert worth < n / 2
    expected_low, expected_high = wilson(p, worth, 2.045229642132703)  # t on 29 degrees of freedom
    assert low == pytest.approx(expected_low)
    assert high == pytest.approx(expected_high)
    plain_low, plain_high = wilson(p, n)
    assert high - low > plain_high - plain_low


def test_a_group_without_variance_takes_the_design_effect_of_all(rng):
    """Where every trial was right the interval is still not empty."""
    data = clustered_data(rng)
    sums = np.array([[d.sum(), len(d)] for d in data], float)
    trials = np.array([[len(d)] * 2 for d in data], float)
    low, high = clustered_wilson(rates(sums, trials))
    plain_low, _ = wilson(np.ones(1), trials.sum(axis=0)[1:])
    assert high[1] == 1
    assert low[1] < plain_low[0] < 1


@pytest.mark.parametrize(("right", "trials"), [(4, 8), (1, 3), (7, 12)])
def test_clusters_that_agree_exactly_count_their_trials_as_independent(right, trials):
    """Two contexts with the same share of right answers show no variance; the interval is not empty for that."""
    found = rates(np.full((2, 1), float(right)), np.full((2, 1), float(trials)))
    low, high = clustered_wilson(found)
    expected = wilson(found.rate_R, found.trials_R, stats.t.isf(0.025, 1))
    assert (low[0], high[0]) == pytest.approx((expected[0][0], expected[1][0]))


def test_a_group_whose_clusters_agree_takes_the_design_effect_of_the_others(rng):
    """Rounding must not make its trials worth infinitely many."""
    data = clustered_data(rng, clusters=12)
    trials = np.array([[len(d), 3] for d in data], float)
    found = rates(np.array([[d.sum(), 1] for d in data], float), trials)
    p, n = found.rate_R, found.trials_R
    effect = (found.se**2).sum() / (p * (1 - p) / n).sum()
    low, high = clustered_wilson(found)
    expected = wilson(p[1], n[1] / effect, stats.t.isf(0.025, 11))
    assert (low[1], high[1]) == pytest.approx(expected)


def test_cluster_t_without_skewness_is_the_t_interval_of_the_means(rng):
    """With equal clusters that scatter evenly it is the textbook interval of the cluster means."""
    half = rng.normal(0, 1, 6)
    means = -1 + np.concatenate([half, -half])
    low, high = clustered_t(rates(50 * means[:, None], np.full((12, 1), 50.0)))
    expected = sm.stats.DescrStatsW(means).tconfint_mean()
    assert (low[0], high[0]) == pytest.approx(expected, rel=1e-5)


def test_cluster_t_follows_a_tail_of_failures(rng):
    """Of means with a long lower tail it misses at least a quarter fewer than the textbook interval."""
    missed, textbook = 0, 0
    for _ in range(1000):
        means = -rng.lognormal(0, 1, 25)
        true = -np.exp(0.5)
        low, high = clustered_t(rates(50 * means[:, None], np.full((25, 1), 50.0)))
        missed += not low[0] <= true <= high[0]
        ends = sm.stats.DescrStatsW(means).tconfint_mean()
        textbook += not ends[0] <= true <= ends[1]
    assert missed < 0.75 * textbook


def test_estimates_are_cut_to_their_range():
    """Value and ends are cut, a missing end stays missing."""
    assert Estimate(-0.1, -0.3, 1.2).within(0, 1) == Estimate(0.0, 0.0, 1.0)
    assert Estimate(0.5).within(0, 1) == Estimate(0.5)
