"""Steps in position are found where they were planted, and chance shows none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phasescope.statistics.designs import Groups, joint_gram
from phasescope.statistics.fold import centred, trend_basis, within_blocks
from phasescope.statistics.period import CANDIDATES
from phasescope.statistics.position import position_effects
from phasescope.statistics.steps import Step, Steps, find_steps, step_columns
from phasescope.statistics.table import Table
from tests.statistics.planted import CLUSTERED, Design, flat, one_bad_phase, plant, sine, slope


def found(table: Table, rng: np.random.Generator) -> Steps:
    """The steps beyond a cubic."""
    trend = trend_basis(table, "source")
    values = within_blocks(table.outcomes["accuracy"], table, trend)
    return find_steps(table, "accuracy", "source", values, trend, rng, 99)


def test_a_step_is_found_where_it_is(rng):
    """After token 20 recall falls; the size is in points of accuracy."""
    design = replace(CLUSTERED, aperiodic="step", size=2.0, layout_sd=0.2)
    steps = found(plant(flat(8), design, rng), rng)
    assert steps.p_value == 0.01
    first = max(steps.steps, key=lambda step: abs(step.size))
    assert first.after == pytest.approx(20, abs=1)
    assert first.size == pytest.approx(-0.4, abs=0.1)


def test_a_bump_is_two_steps(rng):
    """Down at 17 and up again at 22."""
    steps = found(plant(flat(8), replace(CLUSTERED, aperiodic="bump", size=3.0, layout_sd=0.2), rng), rng)
    source = sorted((step.after, step.size < 0) for step in steps.steps if step.along == "source")
    assert (17, True) in source
    assert len(steps.steps) >= 2


def test_without_an_effect_there_is_none(rng):
    """Six flat runs: by chance one in twenty would be significant."""
    p = [found(plant(flat(8), CLUSTERED, rng), rng).p_value for _ in range(6)]
    assert sum(value is not None and value <= 0.05 for value in p) <= 2


def test_layouts_that_do_not_move_anything_have_no_steps(rng):
    """Nothing varies within a block."""
    table = plant(flat(4), Design(clusters=4, questions=2), rng)
    still = replace(table, source_CLQ=np.zeros_like(table.source_CLQ))
    assert found(still, rng) == Steps(None, ())


@pytest.mark.parametrize("kind", ["step", "bump"])
def test_a_step_is_no_period(kind):
    """A search without steps calls it one; with them the steps are named and no period."""
    rng = np.random.default_rng(1)
    table = plant(flat(8), replace(CLUSTERED, aperiodic=kind, size=3.0, layout_sd=0.2), rng)
    effects = position_effects(table, "accuracy", "source", CANDIDATES, rng, 99)
    assert effects.alone.stride is not None
    assert effects.period.stride is None
    assert effects.lead
    assert effects.stand


def test_a_period_stays_one_beside_a_step(rng):
    """Both are found, each beyond the other."""
    table = plant(sine(8, 0.3), replace(CLUSTERED, aperiodic="step", size=1.5), rng)
    effects = position_effects(table, "accuracy", "source", CANDIDATES, rng, 199)
    assert effects.period.stride == 8
    assert effects.stand


@pytest.mark.parametrize(
    "curve", [slope(12, 0.6), slope(8, 0.6), np.repeat([0.9, 0.5], 6), one_bad_phase(12, 0.5)]
)
def test_a_sawtooth_is_a_period(curve, rng):
    """Steps at every boundary take up nearly all of it, and yet less than the phases do."""
    table = plant(curve, CLUSTERED, rng)
    effects = position_effects(table, "accuracy", "source", CANDIDATES, rng, 99)
    assert effects.period.stride == len(curve)
    assert not effects.lead


def test_a_period_alone_has_no_steps_to_stand(rng):
    """What is left by the period is chance."""
    table = plant(sine(8, 0.3), replace(CLUSTERED, layout_sd=0.1), rng)
    effects = position_effects(table, "accuracy", "source", CANDIDATES, rng, 99)
    assert effects.period is effects.alone
    assert effects.period.stride == 8
    assert not effects.lead


def test_step_columns_are_an_orthonormal_basis(rng):
    """Of the trend and the steps, within blocks."""
    table = plant(flat(8), CLUSTERED, rng)
    trend = trend_basis(table, "source")
    basis = step_columns(table, "source", (Step("source", 20, -1.0), Step("offset", 5, 1.0)), trend)
    assert basis.shape[1] == trend.shape[1] + 2
    assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]))
    step = centred((table.source_CLQ > 20).astype(float), table).reshape(-1)
    assert np.allclose(basis @ (basis.T @ step), step)


def test_the_joint_gram_is_that_of_the_columns_written_out(rng):
    """Indicators of two groupings, without block means."""
    labels = [rng.integers(0, 3, (4, 6, 5)), rng.integers(0, 2, (4, 6, 5))]
    written = np.concatenate(
        [label[..., None] == np.arange(n) for label, n in zip(labels, (3, 2), strict=True)], -1
    )
    within = (written - written.mean(axis=1, keepdims=True)).reshape(-1, 5)
    gram = joint_gram([Groups(labels[0], 3), Groups(labels[1], 2)])
    assert np.allclose(gram, within.T @ within)
