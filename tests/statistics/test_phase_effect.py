"""Phase SD and the smallest effect that would have been seen."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.power import FTestAnovaPower

from phasescope.statistics.intervals import Rates
from phasescope.statistics.phase_effect import noise_of, phase_sd, smallest_effect


def drawn(truth_S: np.ndarray, sd_S: np.ndarray, clusters: int, rng: np.random.Generator) -> Rates:
    """Effects of clusters that scatter normally about the truth."""
    own_CS = truth_S + sd_S * rng.standard_normal((clusters, len(truth_S)))
    own_CS -= own_CS.mean(axis=1, keepdims=True)
    deviation_CS = (own_CS - own_CS.mean(axis=0)) / np.sqrt(clusters * (clusters - 1))
    return Rates(own_CS.mean(axis=0), np.full(len(truth_S), 1000.0), deviation_CS)


def test_squared_phase_sd_is_unbiased_at_no_effect_and_at_some(rng):
    """Averaged before clipping, tau² is the truth's variance, where max − min would be far above."""
    for size in (0.0, 0.05):
        truth = size * np.linspace(-1, 1, 8)
        excess = []
        for _ in range(400):
            effects = drawn(truth, np.full(8, 0.3), 25, rng)
            excess.append((effects.rate_R @ effects.rate_R - noise_of(effects).trace) / 8)
        error = np.std(excess) / np.sqrt(400)
        assert np.mean(excess) == pytest.approx(np.var(truth), abs=3.5 * error)


def test_the_noise_of_rare_failures_is_neither_over_nor_underrated(rng):
    """The trace of V² is unbiased where one cluster in five carries all the noise, far from a normal law."""
    clusters, sd_S, square = 25, np.array([3.0, 2.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5]), []
    for _ in range(2000):
        own_CS = sd_S * rng.standard_normal((clusters, 8)) * (rng.random((clusters, 1)) < 0.2)
        deviation_CS = (own_CS - own_CS.mean(axis=0)) / np.sqrt(clusters * (clusters - 1))
        square.append(noise_of(Rates(own_CS.mean(axis=0), np.full(8, 1000.0), deviation_CS)).square)
    true = (sd_S**4).sum() * (0.2 / clusters) ** 2
    assert np.mean(square) == pytest.approx(true, rel=0.15)  # a normal law's formula is 60 % above


def test_value_lies_in_its_interval_and_nothing_is_negative(rng):
    """Also where the estimate is clipped at 0, the upper end is above it."""
    for size in (0.0, 0.02, 0.3):
        for _ in range(50):
            found = phase_sd(drawn(size * np.linspace(-1, 1, 4), np.full(4, 0.3), 12, rng))
            assert 0 <= found.low <= found.value <= found.high
            assert found.high > 0


def test_more_phases_than_clusters_are_no_trouble(rng):
    """Tr V² of 128 phases from 25 clusters comes out near the truth, where the plain estimate is six times it."""
    effects = [drawn(np.zeros(128), np.ones(128), 25, rng) for _ in range(40)]
    truth = 127 / 25**2
    plain = np.mean([((e.deviation_CR @ e.deviation_CR.T) ** 2).sum() for e in effects])
    assert plain > 5 * truth
    assert np.mean([noise_of(e).square for e in effects]) == pytest.approx(truth, rel=0.1)


def test_without_clusters_there_is_no_interval_and_no_value():
    """One cluster does not show its own noise."""
    alone = Rates(np.array([0.1, -0.1]), np.full(2, 100.0), np.zeros((1, 2)))
    assert phase_sd(alone).value is None
    assert smallest_effect(alone) is None


def test_a_perfect_score_is_not_taken_for_certainty():
    """3,000 right answers leave room for a small phase SD, and more for fewer."""

    def upper(trials: float) -> float:
        return phase_sd(Rates(np.zeros(4), np.full(4, trials), np.zeros((25, 4)))).high

    assert 0 < upper(3000) < 0.001 < upper(50) < 0.05


def test_smallest_effect_is_the_power_of_an_analysis_of_variance(rng):
    """With known equal noise it agrees with statsmodels' power of an F test of that many groups."""
    phases, clusters, sd = 8, 400, 0.3
    found = smallest_effect(drawn(np.zeros(phases), np.full(phases, sd), clusters, rng))
    f = FTestAnovaPower().solve_power(
        effect_size=None, nobs=phases * clusters, alpha=0.05, power=0.8, k_groups=phases
    )
    assert found == pytest.approx(f * sd, rel=0.1)
    assert smallest_effect(drawn(np.zeros(phases), np.full(phases, sd), 4 * clusters, rng)) == pytest.approx(
        found / 2, rel=0.1
    )
