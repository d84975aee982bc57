"""Designs that are never written out give the sums of those that are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phasescope.statistics.designs import Groups, permuted_sums
from phasescope.statistics.fold import centred, fold_table, trend_basis, within_blocks
from phasescope.statistics.table import Table
from tests.statistics.planted import CLUSTERED, Design, flat, plant, slope


def ragged(rng: np.random.Generator, **changes: object) -> Table:
    """Contexts with one to five questions."""
    table = plant(slope(6, 0.3), replace(CLUSTERED, clusters=7, layouts=12, questions=5, **changes), rng)  # type: ignore[arg-type]
    asked = np.arange(5) < rng.integers(1, 6, 7)[:, None]
    outcomes = {name: values * asked[:, None] for name, values in table.outcomes.items()}
    return replace(table, asked_CQ=asked, outcomes=outcomes)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("own_layouts", [False, True])
def test_a_fold_is_its_columns(own, own_layouts, rng):
    """Gram, sums, fits, cluster sums and permuted sums, also with a profile for every context."""
    table = ragged(rng, own_layouts=own_layouts)
    trend = trend_basis(table, "source", own=own)
    fold = fold_table(table, "source", 6, trend, own=own)
    phase = table.source_CLQ % 6 + (6 * np.arange(7)[:, None, None] if own else 0)
    columns = centred((phase[..., None] == fold.phase_S).astype(float), table).reshape(-1, len(fold.phase_S))
    columns -= trend @ (trend.T @ columns)
    assert np.allclose(fold.written(), columns)
    assert np.allclose(fold.gram_SS, columns.T @ columns)
    values = within_blocks(table.outcomes["accuracy"], table, trend)
    assert np.allclose(fold.sums(values), columns.T @ values.reshape(-1))
    by_cluster = (columns * values.reshape(-1, 1)).reshape(7, -1, columns.shape[1]).sum(axis=1)
    assert np.allclose(fold.cluster_sums(values), by_cluster)
    effect = rng.normal(size=len(fold.phase_S))
    assert np.allclose(fold.fitted(effect).reshape(-1), columns @ effect)
    drawn = fold.permuted(values, np.random.default_rng(3), 50)
    [written] = permuted_sums(values, [columns], np.random.default_rng(3), 50)
    assert np.allclose(drawn, written)


def test_sums_are_those_of_outcomes_that_were_really_moved(rng):
    """Draw by draw, each a permutation of the layouts of whole contexts."""
    table = plant(flat(4), Design(clusters=3, layouts=5, questions=4), rng)
    values = centred(table.outcomes["logprob"], table)
    groups = Groups(table.source_CLQ % 4, 4)
    [drawn] = permuted_sums(values, [groups], np.random.default_rng(9), 30)
    [moved] = permuted_sums(values, [np.eye(values.size)], np.random.default_rng(9), 30)
    for row, one in zip(drawn, moved.reshape(31, *values.shape), strict=True):
        for cluster in range(3):  # whole layouts of a context change places
            assert {tuple(layout) for layout in one[cluster]} == {tuple(layout) for layout in values[cluster]}
        assert np.allclose(row, [one[groups.label_CLQ == group].sum() for group in range(4)])
    assert np.allclose(moved[0], values.reshape(-1))
    assert len({one.tobytes() for one in moved}) == 31
    assert np.allclose(drawn[0], [values[groups.label_CLQ == group].sum() for group in range(4)])


def test_large_products_are_taken_in_parts(monkeypatch, rng):
    """The same sums whatever is held at a time."""
    table = plant(flat(4), Design(clusters=3, layouts=8, questions=4), rng)
    values = centred(table.outcomes["logprob"], table)
    groups = Groups(table.source_CLQ % 4, 4)
    [whole] = permuted_sums(values, [groups], np.random.default_rng(9), 30)
    monkeypatch.setattr("phasescope.statistics.designs.HELD", 70)
    [parts] = permuted_sums(values, [groups], np.random.default_rng(9), 30)
    assert np.allclose(whole, parts)
