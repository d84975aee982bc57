"""Turns that bring the residue groups to the same mean and variance of position."""

import numpy as np
import pytest

from phasescope.protocols.turns import balanced_turns


def spreads(start_CQ, groups, turn_CL):
    """Spread over residues of the mean, and of the SD, of position."""
    place = (start_CQ[:, None, :] + np.arange(groups)[:, None] + groups * turn_CL[:, :, None]).ravel()
    by_residue = [place[place % groups == residue] for residue in range(groups)]
    return np.ptp([group.mean() for group in by_residue]), np.ptp([group.std() for group in by_residue])


@pytest.mark.parametrize(
    ("contexts", "questions", "groups"), [(8, 4, 8), (25, 1, 8), (25, 8, 8), (24, 4, 24)]
)
@pytest.mark.parametrize("width", [10, 5000])
def test_groups_agree_in_mean_and_sd_of_position(contexts, questions, groups, width):
    """To one token, whether sources lie close together or thousands of tokens apart."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        start_CQ = rng.integers(width, size=(contexts, 1)) + rng.integers(
            9, size=(contexts, questions)
        ).cumsum(1)
        assert max(spreads(start_CQ, groups, balanced_turns(start_CQ, groups, rng))) <= 1


def test_turns_are_chosen_and_not_left_to_chance():
    """Random turns are worse than chosen ones, which are the same for the same seed."""
    start_CQ = np.random.default_rng(1).integers(900, size=(25, 4))
    random = np.random.default_rng(2).integers(2, size=(25, 8))
    chosen = balanced_turns(start_CQ, 8, np.random.default_rng(2))
    assert max(spreads(start_CQ, 8, chosen)) < 0.2 < max(spreads(start_CQ, 8, random))
    assert np.array_equal(chosen, balanced_turns(start_CQ, 8, np.random.default_rng(2)))
    assert set(np.unique(chosen)) == {0, 1}
