"""Phase effects within blocks, against regressions with one dummy per block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm

from phasescope.statistics.fold import (
    DEGREE,
    fold_table,
    identified_fold,
    mean_rate,
    phase_effects,
    phase_rates,
    trend_basis,
)
from phasescope.statistics.table import Table
from tests.statistics.planted import Design, plant, slope

SMALL = Design(clusters=8, layouts=12, questions=3)


def regression(table: Table, modulus: int, degree: int):
    """Ordinary least squares on block, polynomial and phase dummies, clustered by context."""
    clusters, layouts, questions = table.source_CLQ.shape
    index = np.indices((clusters, layouts, questions))
    keep = table.asked.reshape(-1)
    block = (index[0] * questions + index[2]).reshape(-1)[keep]
    position = table.source_CLQ.reshape(-1)[keep].astype(float)
    phase = position.astype(int) % modulus
    scaled = (position - position.mean()) / np.ptp(position)
    design = np.column_stack(
        [block[:, None] == np.unique(block), *(scaled**k for k in range(1, degree + 1))]
        + [phase == s for s in range(1, modulus)]
    ).astype(float)
    fit = sm.OLS(table.outcomes["accuracy"].reshape(-1)[keep], design).fit(
        cov_type="cluster",
        cov_kwds={"groups": index[0].reshape(-1)[keep], "use_correction": False},
    )
    return fit.params[-(modulus - 1) :], fit.cov_params()[-(modulus - 1) :, -(modulus - 1) :]


@pytest.mark.parametrize(("modulus", "own"), [(4, False), (5, False), (4, True)])
def test_effects_and_covariance_equal_a_regression_on_block_trend_and_phase(rng, modulus, own):
    """Contrasts with phase 0 agree, also where the phases don't divide the layouts or move by question."""
    table = plant(slope(modulus, 0.3), replace(SMALL, own_layouts=own), rng)
    found = phase_effects(table, "accuracy", identified_fold(table, "source", modulus))
    effect, covariance = regression(table, modulus, DEGREE)
    contrast = np.hstack([-np.ones((modulus - 1, 1)), np.eye(modulus - 1)])
    mine = contrast @ found.deviation_CR.T @ found.deviation_CR @ contrast.T
    assert found.rate_R.sum() == pytest.approx(0, abs=1e-12)
    assert contrast @ found.rate_R == pytest.approx(effect)
    assert mine == pytest.approx(covariance * 8 / 7, rel=1e-6)


def test_covariance_of_a_balanced_run_is_the_delete_one_cluster_jackknife(rng):
    """Leaving out each context in turn and estimating anew gives the same covariance."""
    table = plant(slope(4, 0.3), SMALL, rng)
    none = trend_basis(table, "source")[:, :0]
    found = phase_effects(table, "accuracy", fold_table(table, "source", 4, none))
    left_out = []
    for c in range(8):
        kept = np.arange(8) != c
        rest = Table(
            condition="rest",
            source_CLQ=table.source_CLQ[kept],
            query_CLQ=table.query_CLQ[kept],
            asked_CQ=table.asked_CQ[kept],
            outcomes={"accuracy": table.outcomes["accuracy"][kept]},
        )
        basis = trend_basis(rest, "source")[:, :0]
        left_out.append(phase_effects(rest, "accuracy", fold_table(rest, "source", 4, basis)).rate_R)
    centred = np.array(left_out) - np.mean(left_out, axis=0)
    jackknife = 7 / 8 * centred.T @ centred
    assert found.deviation_CR.T @ found.deviation_CR == pytest.approx(jackknife, abs=1e-12)


def test_a_question_that_only_fills_up_changes_nothing(rng):
    """Dropping a question from some clusters equals a regression on the rest."""
    table = plant(slope(4, 0.3), SMALL, rng)
    table.asked_CQ[2:5, 2] = False
    table.source_CLQ[~table.asked] = 0
    table.outcomes["accuracy"][~table.asked] = 0
    found = phase_effects(table, "accuracy", identified_fold(table, "source", 4))
    effect, _ = regression(table, 4, DEGREE)
    assert found.rate_R[1:] - found.rate_R[0] == pytest.approx(effect)


def test_a_depth_trend_without_period_leaves_no_phase_effect(rng):
    """Scores that are a cubic in position fold to nothing, though their raw phase means differ."""
    table = plant(slope(12, 0.0), SMALL, rng)
    x = (table.source_CLQ - table.source_CLQ.mean()) / 20
    table.outcomes["accuracy"][:] = 0.5 + 0.1 * x + 0.05 * x**2 - 0.02 * x**3
    found = phase_effects(table, "accuracy", identified_fold(table, "source", 6))
    assert found.rate_R == pytest.approx(np.zeros(6), abs=1e-12)


def test_the_trend_gives_way_where_it_cannot_be_told_from_the_phases(rng):
    """With every source at the same few positions a phase slope is kept, not taken for depth."""
    table = plant(slope(4, 0.3), Design(clusters=6, layouts=4, questions=1), rng)
    table.source_CLQ[:] = np.arange(4)[None, :, None]
    table.outcomes["accuracy"][:] = np.array([0.9, 0.8, 0.7, 0.6])[None, :, None]
    design = identified_fold(table, "source", 4)
    assert design.trend_NK.shape[1] == 0
    assert phase_effects(table, "accuracy", design).rate_R == pytest.approx([0.15, 0.05, -0.05, -0.15])


def test_phases_that_no_trial_visits_are_left_out(rng):
    """Layouts two tokens apart visit two phases of four, and only these are estimated."""
    table = plant(slope(4, 0.3), SMALL, rng)
    table.source_CLQ[:] = 2 * table.source_CLQ
    design = identified_fold(table, "source", 4)
    assert design.phase_S.tolist() == [0, 2]
    assert design.identified
    assert len(phase_effects(table, "accuracy", design).rate_R) == 2


def test_rates_are_plain_means(rng):
    """Per phase and over all, counted by hand."""
    table = plant(slope(4, 0.3), SMALL, rng)
    phases, found = phase_rates(table, "accuracy", "source", 5)
    score, phase = table.outcomes["accuracy"], table.source_CLQ % 5
    assert phases.tolist() == [0, 1, 2, 3, 4]
    assert found.rate_R == pytest.approx([score[phase == s].mean() for s in range(5)])
    assert found.trials_R.tolist() == [(phase == s).sum() for s in range(5)]
    assert mean_rate(table, "accuracy").rate_R[0] == pytest.approx(score.mean())


def test_the_query_can_be_folded_instead(rng):
    """With a query that moves by layout and a source that stays, the query's phases are found."""
    table = plant(slope(4, 0.3), SMALL, rng)
    table.query_CLQ[:] = 100 + np.arange(12)[None, :, None]
    table.outcomes["accuracy"][:] = (table.query_CLQ % 4 == 3).astype(float)
    _, found = phase_rates(table, "accuracy", "query", 4)
    assert found.rate_R.tolist() == [0, 0, 0, 1]
