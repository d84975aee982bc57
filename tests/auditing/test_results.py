"""Scores that others have paid for: size, power, and the two ways to the same p."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from phasescope.auditing import results
from phasescope.auditing.results import analyse_scores, limit_test

STRIDES = (*range(2, 17), 32)


def scores(rng, samples, drop=0.0, stride=4, trend=0.3, base=0.85):
    """Right or wrong, less often with depth, and by `drop` at one phase."""
    position_N = rng.integers(0, 8000, samples)
    chance_N = base - trend * position_N / 8000 - drop * (position_N % stride == 1)
    return position_N, (rng.random(samples) < chance_N).astype(np.float64)


def within(alarms, level=0.05):
    """Whether so many false alarms are compatible with the level (99.9 %)."""
    low, high = stats.binom.interval(0.999, len(alarms), level)
    return low <= sum(alarms) <= high


@pytest.mark.parametrize("samples", [120, 400])
def test_no_effect_gives_false_alarms_at_the_level(samples):
    """A trend in depth must stay silent: 5 % of 200 runs."""
    rng = np.random.default_rng(samples)
    alarms = []
    for _ in range(200):
        found = analyse_scores(*scores(rng, samples), STRIDES, rng, draws=99)
        alarms.append(found.p_value <= 0.05)
    assert within(alarms)


def test_the_limit_gives_false_alarms_at_the_level():
    """The fast form, at the size from which it is used."""
    rng = np.random.default_rng(3)
    alarms = [limit_test(*scores(rng, 3000), STRIDES, rng, 199)[0] <= 0.05 for _ in range(200)]
    assert within(alarms)


def test_the_limit_agrees_with_the_permutations():
    """Same data, chi-squared statistics only differ by the single-phase one: p within a few points."""
    rng = np.random.default_rng(4)
    gaps = []
    for _ in range(12):
        position_N, score_N = scores(rng, 1500)
        slow = analyse_scores(position_N, score_N, STRIDES, rng, draws=400).by_stride
        fast = limit_test(position_N, score_N, STRIDES, rng, 2000)[2]
        gaps += [abs(rates.p_value - fast[rates.stride]) for rates in slow]
    assert np.mean(gaps) < 0.12


@pytest.mark.parametrize("exact", [True, False])
def test_a_planted_period_is_named(monkeypatch, exact):
    """One bad phase of four, found by either way."""
    monkeypatch.setattr(results, "EXACT", 10_000 if exact else 0)
    rng = np.random.default_rng(5)
    named = [analyse_scores(*scores(rng, 1200, drop=0.25), STRIDES, rng, draws=199).period for _ in range(10)]
    assert named.count(4) >= 9


def test_rates_have_wilsons_intervals_and_the_spread_its_own(rng):
    """Per phase the plain interval; the SD without noise holds what was planted."""
    held = []
    for _ in range(60):
        position_N, score_N = scores(rng, 800, drop=0.2, trend=0.0)
        found = analyse_scores(position_N, score_N, [4], rng, draws=20)
        (rates,) = found.by_stride
        held.append(rates.spread[1] <= 0.2 * np.sqrt(3) / 4 <= rates.spread[2])
    assert np.mean(held) >= 0.85
    k, n = int(score_N[position_N % 4 == 2].sum()), int((position_N % 4 == 2).sum())
    interval = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert (rates.low_S[2], rates.high_S[2]) == pytest.approx((interval.low, interval.high))
    assert found.accuracy == score_N.mean()


def test_phases_that_are_never_asked_have_no_rate(rng):
    """Not a number, and no spread over phases."""
    position_N = 4 * rng.integers(0, 500, 60)
    found = analyse_scores(position_N, np.arange(60) % 2.0, [4, 3], rng, draws=20)
    assert np.isnan(found.by_stride[0].rate_S[1:]).all()
    assert found.by_stride[0].spread is None
    assert found.not_testable == (4,)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_scores_that_do_not_vary_are_not_tested(monkeypatch, rng, exact, score):
    """All right or all wrong is no sign that recall has no period; rates are there all the same."""
    monkeypatch.setattr(results, "EXACT", 10_000 if exact else 0)
    found = analyse_scores(rng.integers(0, 900, 200), np.full(200, score), STRIDES, rng, draws=50)
    assert (found.p_value, found.period, found.tested, found.alike) == (None, None, (), True)
    assert found.words == "its scores do not vary, so that no period can be tested"
    assert (found.accuracy, len(found.by_stride)) == (score, len(STRIDES))


def test_the_words_name_a_period_or_none_with_its_p(rng):
    """And say where nothing could be tested."""
    position_N, score_N = scores(rng, 40)
    found = analyse_scores(position_N, score_N, [4], rng, draws=20)
    assert replace(found, period=4, p_value=0.0001).words == "its scores repeat every 4 tokens (p < 0.001)"
    assert replace(found, period=None, p_value=0.4).words == "its scores show no period (p = 0.400)"
    assert analyse_scores(position_N, score_N, [64], rng, draws=20).words.startswith("its scores are too few")


def test_the_limit_without_variance_finds_nothing(rng):
    """A p of 1, and none where no stride can be tested."""
    position_N = rng.integers(0, 900, 200)
    assert limit_test(position_N, np.ones(200), STRIDES, rng, 50)[:2] == (1.0, None)
    assert limit_test(position_N[:3], np.ones(3), [64], rng, 50) == (None, None, {})
