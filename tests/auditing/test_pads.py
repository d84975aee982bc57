"""Fewest pads, even phases."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasescope.auditing.pads import MOST, common_period, pads
from phasescope.errors import UsageError


def fewest(position_N, stride):
    """By trying every pad of every sample."""
    best = None
    for tried in itertools.product(range(stride), repeat=len(position_N)):
        count_S = np.bincount((position_N + np.array(tried)) % stride, minlength=stride)
        if np.ptp(count_S) <= 1 and (best is None or sum(tried) < best):
            best = sum(tried)
    return best


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_one_stride_is_balanced_by_the_fewest_pads_there_are(stride, positions):
    """Against complete search."""
    position_N = np.array(positions)
    pad_N = pads(position_N, [stride])
    count_S = np.bincount((position_N + pad_N) % stride, minlength=stride)
    assert np.ptp(count_S) <= 1
    assert pad_N.min() >= 0
    assert pad_N.max() < stride
    assert pad_N.sum() == fewest(position_N, stride)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(4, 8), (4, 6), (2, 3, 5), (8, 12), (4, 128), (6, 10, 15)]),
    st.lists(st.integers(0, 5000), min_size=1, max_size=400),
)
def test_several_strides_are_balanced_together(strides, positions):
    """Counts of every stride differ by at most one."""
    position_N = np.array(positions)
    pad_N = pads(position_N, strides)
    assert pad_N.min() >= 0
    assert pad_N.max() < common_period(strides)
    for stride in strides:
        assert np.ptp(np.bincount((position_N + pad_N) % stride, minlength=stride)) <= 1


def test_a_balanced_benchmark_is_left_alone():
    """No pads."""
    assert not pads(np.arange(96), [8]).any()
    assert not pads(np.arange(96), [4, 6, 8]).any()


def test_pads_are_spread_where_there_are_fewer_samples_than_residues():
    """50 samples under a common period of 128 cost a few tokens each, not half a period."""
    position_N = np.random.default_rng(0).integers(0, 4000, 50)
    assert pads(position_N, [4, 8, 128]).mean() < 12


def test_a_common_period_that_is_too_long_is_refused():
    """2 to 16 repeat together every 720,720 tokens."""
    with pytest.raises(UsageError, match="720,720"):
        pads(np.arange(10), range(2, 17))
    assert common_period([2, 1024]) <= MOST
    with pytest.raises(UsageError, match="nothing to balance"):
        common_period([])
