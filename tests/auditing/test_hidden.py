"""What a benchmark could hide and what it could see."""

import numpy as np
import pytest
from scipy import stats

from phasescope.auditing.hidden import blind_phases, detectable_loss, hidden_loss


def test_a_model_at_the_hidden_loss_just_passes():
    """The mean accuracy at that loss is the bar, or the loss is total."""
    share_S = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
    for phase, loss in enumerate(hidden_loss(share_S, bar=0.9)):
        accuracy_S = np.ones(5)
        accuracy_S[phase] -= loss
        mean = float(share_S @ accuracy_S)
        assert mean == pytest.approx(0.9) if share_S[phase] > 0.1 else loss == 1.0
        assert mean >= 0.9 - 1e-12


def test_a_phase_that_is_not_visited_hides_everything():
    """One phase of four visited: blind at the other three passes."""
    share_S = np.array([0.0, 1.0, 0.0, 0.0])
    assert hidden_loss(share_S, 0.9).tolist() == [1.0, pytest.approx(0.1), 1.0, 1.0]
    assert blind_phases(share_S, 0.9) == 3


@pytest.mark.parametrize(("stride", "blind"), [(4, 0), (8, 0), (10, 1), (16, 1), (32, 3), (128, 12)])
def test_an_even_benchmark_still_hides_blind_phases_at_wide_strides(stride, blind):
    """As many as a tenth of the samples holds."""
    assert blind_phases(np.full(stride, 1 / stride), 0.9) == blind


def test_a_bar_of_one_hides_nothing_that_is_visited():
    """A perfect score leaves no room."""
    assert hidden_loss(np.array([0.5, 0.5, 0.0]), 1.0).tolist() == [0, 0, 1]
    assert blind_phases(np.array([0.5, 0.5, 0.0]), 1.0) == 1


@pytest.mark.parametrize(
    ("count_S", "accuracy"), [([60] * 4, 0.9), ([100] * 8, 0.8), ([40, 200, 200, 200], 0.95)]
)
def test_the_detectable_loss_is_found_in_four_of_five_cases(count_S, accuracy):
    """Simulated with the test that it is meant for."""
    rng = np.random.default_rng(0)
    count_S = np.array(count_S)
    loss = detectable_loss(count_S, accuracy)[0]
    here, elsewhere = int(count_S[0]), int(count_S[1:].sum())
    right = rng.binomial(here, accuracy - loss, 4000)
    others = rng.binomial(elsewhere, accuracy, 4000)
    pooled = (right + others) / (here + elsewhere)
    z = (others / elsewhere - right / here) / np.sqrt(pooled * (1 - pooled) * (1 / here + 1 / elsewhere))
    found = np.mean(z > stats.norm.isf(0.025 / len(count_S)))
    assert 0.72 < found < 0.88


def test_what_is_not_visited_cannot_be_seen():
    """None, and none where even total failure is too little to see."""
    assert detectable_loss(np.array([0, 100]), 0.9)[0] is None
    assert detectable_loss(np.array([1, 3, 3, 3]), 0.5) == [None] * 4


def test_more_samples_see_smaller_losses():
    """Monotone in the counts."""
    losses = [detectable_loss(np.full(4, n), 0.9)[0] for n in (20, 50, 200, 1000)]
    assert losses == sorted(losses, reverse=True)
    assert detectable_loss(np.full(4, 100), 1.0)[0] > 0
