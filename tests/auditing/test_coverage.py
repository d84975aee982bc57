"""Counts, evenness and effective number of phases."""

import numpy as np
import pytest
from scipy import stats

from phasescope.auditing.coverage import cover
from phasescope.errors import UsageError


def test_counts_are_those_of_the_positions_modulo_the_stride(rng):
    """Every sample is at one phase."""
    position_N = rng.integers(0, 1000, 700)
    found = cover(position_N, 7, rng)
    assert found.count_S.tolist() == [(position_N % 7 == phase).sum() for phase in range(7)]
    assert found.total == 700


def test_a_filler_line_of_24_tokens_visits_one_phase_of_8(rng):
    """Positions c + 24 k."""
    found = cover(5 + 24 * np.arange(500), 8, rng)
    assert (found.visited, found.effective) == (1, 1.0)
    assert found.p_value < 1e-6


def test_even_phases_count_in_full(rng):
    """Exp of the entropy is S; nothing is uneven."""
    found = cover(np.arange(800), 8, rng)
    assert found.visited == 8
    assert found.effective == pytest.approx(8)
    assert found.p_value == 1.0


def test_effective_phases_are_the_exponential_of_the_entropy(rng):
    """Against scipy's entropy."""
    position_N = rng.geometric(0.3, 400)
    found = cover(position_N, 6, rng)
    assert found.effective == pytest.approx(np.exp(stats.entropy(found.count_S)))


def test_chi_squared_equals_scipys(rng):
    """Where counts are large."""
    found = cover(rng.integers(0, 10**6, 900), 12, rng)
    assert found.p_method == "chi-squared"
    assert found.p_value == pytest.approx(stats.chisquare(found.count_S).pvalue)


def test_two_phases_are_tested_exactly(rng):
    """5 of 5 at one phase: 2 / 32."""
    assert cover(np.zeros(5, dtype=np.int64), 2, rng).p_value == pytest.approx(2 / 32)


@pytest.mark.slow
@pytest.mark.parametrize(("total", "stride"), [(30, 16), (60, 32), (100, 4), (9, 2)])
def test_the_test_of_evenness_keeps_its_size(total, stride):
    """Positions at random are called uneven at 5 % in 5 % of all cases, or fewer where counts are few."""
    rng = np.random.default_rng(1)
    small = [cover(rng.integers(0, 10**6, total), stride, rng).p_value <= 0.05 for _ in range(400)]
    assert np.mean(small) <= 0.085


def test_small_counts_agree_with_complete_enumeration():
    """Three samples on three phases: all at one has probability 1/9, none uneven 2/9."""
    rng = np.random.default_rng(2)
    assert cover(np.array([0, 3, 6]), 3, rng).p_value == pytest.approx(1 / 9, abs=0.012)
    assert cover(np.array([0, 1, 3]), 3, rng).p_value == pytest.approx(7 / 9, abs=0.02)
    assert cover(np.array([0, 1, 2]), 3, rng).p_value == 1.0


def test_wide_strides_stay_in_memory(rng):
    """Draws come in handfuls, fewer of them where the stride is wide."""
    found = cover(rng.integers(0, 10**6, 50), 65_536, rng)
    assert found.count_S.sum() == 50
    assert "3,051" in found.p_method


def test_nothing_to_count_is_refused(rng):
    """No positions, no phases."""
    with pytest.raises(UsageError, match="no sample"):
        cover(np.array([], dtype=np.int64), 4, rng)
    with pytest.raises(UsageError, match="stride 1"):
        cover(np.array([1]), 1, rng)
