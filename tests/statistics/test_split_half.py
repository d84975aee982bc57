"""Picking on one half and measuring on the other."""

from __future__ import annotations

import numpy as np
import pytest

from phasescope.statistics.intervals import Rates
from phasescope.statistics.split_half import LOWEST, WIDEST, split_half


def drawn(truth_S: np.ndarray, sd: float, rng: np.random.Generator, clusters: int = 25) -> Rates:
    """Rates of clusters that scatter normally about the truth."""
    own_CS = truth_S + sd * rng.standard_normal((clusters, len(truth_S)))
    deviation_CS = (own_CS - own_CS.mean(axis=0)) / np.sqrt(clusters * (clusters - 1))
    return Rates(own_CS.mean(axis=0), np.full(len(truth_S), 1000.0), deviation_CS)


@pytest.mark.slow
def test_no_gap_is_measured_where_there_is_none(rng):
    """On average 0, while largest less smallest of the same curves is far above."""
    curves = [drawn(np.full(16, 0.7), 0.2, rng) for _ in range(100)]
    found = np.array([split_half(curve, WIDEST, rng).estimate.value for curve in curves])
    assert np.mean([np.ptp(curve.rate_R) for curve in curves]) > 0.12
    assert found.mean() == pytest.approx(0, abs=3.5 * found.std() / np.sqrt(100))


def test_a_clear_gap_is_read_without_bias(rng):
    """A true 20 reads 20, and so does the worst phase."""
    truth = np.array([0.9, 0.85, 0.85, 0.7])
    curves = [drawn(truth, 0.05, rng) for _ in range(60)]
    gap = np.mean([split_half(curve, WIDEST, rng).estimate.value for curve in curves])
    worst = np.mean([split_half(curve, LOWEST, rng).estimate.value for curve in curves])
    assert gap == pytest.approx(0.2, abs=0.008)
    assert worst == pytest.approx(0.7, abs=0.006)


def test_weights_say_what_was_picked(rng):
    """All weight is on the best and the worst phase where these are beyond doubt."""
    curve = drawn(np.array([0.5, 0.9, 0.5, 0.1]), 0.05, rng)
    assert split_half(curve, WIDEST, rng).weight_S.tolist() == [0, 1, 0, -1]
    assert split_half(curve, LOWEST, rng).weight_S.tolist() == [0, 0, 0, 1]


def test_interval_holds_the_true_gap_where_phases_are_nearly_tied(rng):
    """A slope so weak that halves pick different phases is still covered, above the low estimate."""
    truth = 0.7 + 0.06 * np.linspace(-0.5, 0.5, 8)
    found = [split_half(drawn(truth, 0.15, rng), WIDEST, rng).estimate for _ in range(100)]
    assert np.mean([e.value for e in found]) < 0.055
    assert np.mean([e.low <= 0.06 <= e.high for e in found]) >= 0.88  # 0.95 less 3 standard errors


@pytest.mark.slow
def test_interval_of_a_flat_curve_is_no_wider_than_it_must_be(rng):
    """About 1 in 20 excludes a gap of 0, though it cannot be negative and failures are rare."""
    wrong = 0
    for _ in range(300):
        own_CS = 1 - rng.poisson(0.5, (25, 8)) / 24
        own_CS -= own_CS.mean(axis=1, keepdims=True)
        deviation_CS = (own_CS - own_CS.mean(axis=0)) / np.sqrt(25 * 24)
        curve = Rates(own_CS.mean(axis=0), np.full(8, 600.0), deviation_CS)
        wrong += split_half(curve, WIDEST, rng).estimate.low > 0
    assert 7 <= wrong <= 26  # each end has probability 0.01 at 5 %


def test_the_same_seed_gives_the_same_estimate(rng):
    """Halvings and resamples come from the generator alone."""
    curve = drawn(np.linspace(0.6, 0.8, 8), 0.2, rng)
    one, other = (split_half(curve, WIDEST, np.random.default_rng(5)).estimate for _ in range(2))
    assert one == other


def test_fewer_than_four_clusters_cannot_be_halved(rng):
    """No value, and no crash."""
    assert split_half(drawn(np.zeros(4), 1.0, rng, clusters=3), WIDEST, rng).estimate.value is None


def test_perfect_scores_leave_room_for_the_unseen(rng):
    """All right at every phase: gap 0 and worst 1, neither with an empty interval."""
    curve = Rates(np.ones(4), np.full(4, 600.0), np.zeros((25, 4)))
    gap, worst = (split_half(curve, picks, rng).estimate for picks in (WIDEST, LOWEST))
    assert gap.value == 0
    assert 0 < gap.high < 0.01
    assert worst.value == 1
    assert 0.99 < worst.low < 1
