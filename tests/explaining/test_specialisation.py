"""Losses of planted heads: who carries which phases, and what is seen where nobody does."""

from __future__ import annotations

import numpy as np
import pytest

from phasescope import UsageError
from phasescope.explaining.boundary import rolled_curves
from phasescope.explaining.specialisation import PhaseAxis, contrast, lost, specialise
from phasescope.statistics.table import Table

CONTEXTS, LAYOUTS, QUESTIONS, STRIDE = 20, 24, 6, 8
AXIS = PhaseAxis(STRIDE)


def table(name: str, rate: np.ndarray, seed: int, draws: np.ndarray | None = None) -> Table:
    """Answers that are right at each phase with the given rate; equal draws give paired answers."""
    rng = np.random.default_rng(seed)
    shape = (CONTEXTS, LAYOUTS, QUESTIONS)
    start = np.random.default_rng(99).integers(0, 24, (CONTEXTS, 1, QUESTIONS))
    source = 100 + start + np.arange(LAYOUTS)[None, :, None]
    draw = rng.random(shape) if draws is None else draws
    right = (draw < rate[source % STRIDE]).astype(float)
    logprob = np.log(np.clip(rate[source % STRIDE], 1e-3, 1)) + 0.1 * rng.standard_normal(shape)
    asked = np.ones((CONTEXTS, QUESTIONS), dtype=bool)
    return Table(name, source, np.full(shape, 400), asked, {"accuracy": right, "logprob": logprob})


def draws(seed: int = 0) -> np.ndarray:
    """One uniform number per trial."""
    return np.random.default_rng(seed).random((CONTEXTS, LAYOUTS, QUESTIONS))


FULL = np.full(STRIDE, 0.8)
HALF = np.where(np.arange(STRIDE) < 4, 0.2, 0.8)  # without the head, phases 0 to 3 are lost
EVEN = np.full(STRIDE, 0.5)


def test_a_head_that_carries_half_the_phases_is_told_from_one_that_carries_all_alike():
    """Index, test and loss by phase; the even head's test is silent."""
    same = draws()
    base = table("none", FULL, 1, same)
    found = specialise(
        base,
        [table("half", HALF, 2, same), table("even", EVEN, 3, same), table("idle", FULL, 4, same)],
        "accuracy",
        AXIS,
        rng=np.random.default_rng(0),
        draws=400,
    )
    half, even, idle = found
    assert half.phase == pytest.approx(np.where(np.arange(STRIDE) < 4, 0.6, 0), abs=0.06)
    assert (np.array(half.low) <= half.phase).all()
    assert min(half.high[:4]) > 0.5
    assert half.index == pytest.approx(1 / np.sqrt(7), abs=0.05)  # SD 0.3 over a mean of 0.3
    assert half.p_holm < 0.01
    assert even.p_holm > 0.05
    assert even.index is not None
    assert even.index < even.null_95 < half.index
    assert idle.index is None
    assert idle.mean.value == 0
    assert idle.mean_p == 1


def test_the_false_alarms_of_an_even_head_are_as_rare_as_they_say():
    """Size of the specialisation test at 5 %, under layout noise that all questions of a context share."""
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        shared = rng.normal(0, 0.12, (CONTEXTS, LAYOUTS, 1))
        base = table("none", FULL, seed, draws(seed))
        without = table("even", EVEN, seed + 1, draws(seed) + shared)
        (loss,) = specialise(base, [without], "accuracy", AXIS, rng=rng, draws=99)
        alarms += loss.p <= 0.05
    assert alarms <= 9  # 3 expected; more than 9 has probability 0.001


def test_intervals_widen_with_the_number_of_heads():
    """Intervals hold for all units together."""
    same = draws()
    base, without = table("none", FULL, 1, same), table("half", HALF, 2, same)
    widths = [
        np.mean(np.subtract(found[0].high, found[0].low))
        for found in (
            specialise(base, [without] * count, "accuracy", AXIS, rng=np.random.default_rng(0), draws=50)
            for count in (1, 20)
        )
    ]
    assert widths[1] > 1.3 * widths[0]


def test_the_contrast_is_that_of_the_preferred_phases():
    """Its interval holds the truth, and its power is told."""
    same = draws()
    change = lost(table("none", FULL, 1, same), table("half", HALF, 2, same), "accuracy")
    found = contrast(change, range(4), AXIS)
    assert found is not None
    assert found.estimate.low < 0.6 < found.estimate.high
    assert found.phases == (0, 1, 2, 3)
    assert 0 < found.smallest < 0.1
    assert contrast(change, range(STRIDE), AXIS) is None


def test_tables_of_different_trials_are_not_compared():
    """The same trials, or nothing."""
    one = table("none", FULL, 1)
    other = Table("x", one.source_CLQ + 1, one.query_CLQ, one.asked_CQ, one.outcomes)
    with pytest.raises(UsageError, match="same trials"):
        lost(one, other, "accuracy")


def test_a_curve_that_moves_with_a_roll_is_told_from_one_that_stays():
    """Correlations with the untouched curve, still and moved; change at the boundary phase."""
    weak = np.where(np.arange(STRIDE) == 7, 0.2, 0.8)
    same = draws()
    base = table("none", weak, 1, same)
    moved, stays = table("roll 2", np.roll(weak, 2), 2, same), table("roll 2", weak, 3, same)
    (with_it,) = rolled_curves(base, [(2, moved)], (7,), AXIS)
    (without,) = rolled_curves(base, [(2, stays)], (7,), AXIS)
    assert with_it.moves > 0.95 > 0 > with_it.stays
    assert without.stays > 0.95 > 0 > without.moves
    assert with_it.won.value == pytest.approx(0.6, abs=0.05)
    assert without.won.value == 0
    edge = contrast(base, (7,), AXIS)
    assert edge.estimate.low < -0.6 < edge.estimate.high
    assert contrast(base, (), AXIS) is None
