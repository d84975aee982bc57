"""Layouts are permuted within clusters, for all questions of a cluster at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from phasescope.statistics.designs import permuted_sums
from phasescope.statistics.fold import fold_table, trend_basis, within_blocks
from phasescope.statistics.permutation import permutation_p, quadratic_form
from tests.statistics.planted import Design, flat, plant, slope


def test_a_draw_moves_all_questions_of_a_context_together(rng):
    """With one column per trial the drawn outcomes themselves come back: whole layouts, each cluster its own."""
    values = rng.normal(size=(3, 5, 4))
    drawn = permuted_sums(values, [np.eye(60)], rng, draws=40)[0].reshape(41, 3, 5, 4)
    assert np.array_equal(drawn[0], values)
    orders = []
    for d in range(1, 41):
        order = [
            [int(np.flatnonzero((values[c] == row).all(axis=1))[0]) for row in drawn[d, c]] for c in range(3)
        ]
        assert all(sorted(o) == list(range(5)) for o in order)
        orders.append(order)
    assert len({tuple(o[0]) for o in orders}) > 16  # of 41 in the pool that 40 draws choose from
    assert any(o[0] != o[1] for o in orders)


def test_every_order_of_the_layouts_is_equally_likely(rng):
    """2,400 draws of three layouts hit each of the six orders about 400 times."""
    values = np.array([1.0, 10.0, 100.0]).reshape(1, 3, 1)
    drawn = permuted_sums(values, [np.eye(3)], rng, draws=2400)[0][1:]
    counts = np.unique(drawn @ [1, 2, 3], return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.001


def test_p_agrees_with_scipy_for_one_block(rng):
    """For a single block it is the permutation test of the library, to the noise of its draws."""
    values = rng.normal(size=12)
    group = np.arange(12) % 3
    onehot = (group[:, None] == np.arange(3)).astype(float)
    columns = onehot - onehot.mean(axis=0)
    inverse = np.linalg.pinv(columns.T @ columns)
    [sums] = permuted_sums((values - values.mean()).reshape(1, 12, 1), [columns], rng, draws=4000)
    mine = permutation_p(quadratic_form(sums, inverse))

    def between(*groups: np.ndarray) -> float:
        return float(sum(len(g) * np.mean(g) ** 2 for g in groups))

    parts = [values[group == g] for g in range(3)]
    theirs = stats.permutation_test(
        parts, between, permutation_type="independent", n_resamples=4000, alternative="greater", rng=rng
    ).pvalue
    assert mine == pytest.approx(theirs, abs=0.03)


def test_p_counts_the_observed_draw_and_its_ties():
    """The smallest p is one in draws + 1, and equal statistics count as large."""
    assert permutation_p(np.array([5.0, 1.0, 2.0, 3.0])) == 0.25
    assert permutation_p(np.array([2.0, 1.0, 2.0 - 1e-13, 3.0])) == 0.75
    assert permutation_p(np.zeros(4)) == 1.0


def test_noise_that_a_context_shares_is_no_evidence(rng):
    """Questions under one context's layout noise: joint permutation stays near 5 %, one by block does not."""
    design = Design(clusters=10, layouts=24, questions=32, layout_sd=0.8)
    joint, separate = [], []
    for _ in range(60):
        table = plant(flat(8), design, rng)
        basis = trend_basis(table, "source")
        fold = fold_table(table, "source", 8, basis)
        values = within_blocks(table.outcomes["accuracy"], table, basis)
        sums = fold.permuted(values, rng, draws=99)
        joint.append(permutation_p(quadratic_form(sums, fold.inverse_SS)) <= 0.05)
        alone = values.transpose(0, 2, 1).reshape(-1, 24, 1)
        columns = fold.written().reshape(10, 24, 32, 8).transpose(0, 2, 1, 3).reshape(-1, 8)
        [sums] = permuted_sums(alone, [columns], rng, draws=99)
        separate.append(permutation_p(quadratic_form(sums, fold.inverse_SS)) <= 0.05)
    assert np.mean(joint) <= 0.15  # 9 of 60 or more has probability 0.003 at 5 %
    assert np.mean(separate) >= 0.15


def test_an_effect_is_found(rng):
    """A slope of 30 points gets the smallest p there is."""
    table = plant(slope(8, 0.3), Design(), rng)
    basis = trend_basis(table, "source")
    fold = fold_table(table, "source", 8, basis)
    sums = fold.permuted(within_blocks(table.outcomes["accuracy"], table, basis), rng, draws=199)
    assert permutation_p(quadratic_form(sums, fold.inverse_SS)) == 0.005
