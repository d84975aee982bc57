"""Paired tests against statsmodels and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import cochrans_q

from phasescope.statistics.permutation import paired_test
from phasescope.statistics.table import Table
from tests.statistics.planted import Design, plant, slope

ALONE = Design(clusters=60, layouts=6, questions=1)


def at_stride_six(table: Table, outcome: str, rng: np.random.Generator):
    """The test that is tested."""
    return paired_test(table, outcome, "source", 6, rng, draws=999)


def by_phase(table: Table, outcome: str) -> np.ndarray:
    """Outcomes of single-question clusters as [block, phase]."""
    order = np.argsort(table.source_CLQ[..., 0] % 6, axis=1)
    return np.take_along_axis(table.outcomes[outcome][..., 0], order, axis=1)


def test_scores_of_one_layout_per_phase_give_cochrans_q(rng):
    """Statistic, degrees of freedom and chi-squared p equal statsmodels'."""
    table = plant(slope(6, 0.15), ALONE, rng)
    _, found = at_stride_six(table, "accuracy", rng)
    expected = cochrans_q(by_phase(table, "accuracy"))
    assert found["test"] == "Cochran's Q"
    assert (found["statistic"], found["df"]) == (pytest.approx(expected.statistic), expected.df)
    assert found["p_chi2"] == pytest.approx(expected.pvalue)


def test_continuous_outcomes_give_friedmans_statistic(rng):
    """Log-probabilities, with ties among them, equal scipy's test."""
    table = plant(slope(6, 0.15), ALONE, rng)
    table.outcomes["logprob"][:] = np.round(table.outcomes["logprob"], 1)
    _, found = at_stride_six(table, "logprob", rng)
    expected = stats.friedmanchisquare(*by_phase(table, "logprob").T)
    assert found["test"] == "Friedman's test"
    assert (found["statistic"], found["p_chi2"]) == (
        pytest.approx(expected.statistic),
        pytest.approx(expected.pvalue),
    )


def test_both_p_agree_for_independent_blocks(rng):
    """Where the chi-squared distribution holds, permutation finds it too."""
    table = plant(slope(6, 0.1), ALONE, rng)
    p, found = at_stride_six(table, "accuracy", rng)
    assert p == pytest.approx(found["p_chi2"], abs=0.03)


def test_only_the_permutation_p_knows_of_shared_noise(rng):
    """Forty questions under one layout noise and no effect: the chi-squared p is far too small, mostly."""
    design = Design(clusters=10, layouts=12, questions=40, layout_sd=1.5)
    found = [at_stride_six(plant(slope(6, 0.0), design, rng), "accuracy", rng) for _ in range(30)]
    assert np.mean([f["p_chi2"] < 0.05 for _, f in found]) >= 0.3
    assert np.mean([p < 0.05 for p, _ in found]) <= 0.2


def test_blocks_that_never_differ_say_nothing(rng):
    """All right everywhere: statistic 0, p 1, no warning."""
    table = plant(slope(6, 0.1), ALONE, rng)
    table.outcomes["accuracy"][:] = 1
    p, found = at_stride_six(table, "accuracy", rng)
    assert (found["statistic"], p) == (0, 1)
