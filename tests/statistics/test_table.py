"""Observations become arrays of complete blocks."""

from __future__ import annotations

import numpy as np
import pytest

from phasescope.errors import UsageError
from phasescope.statistics.table import tabulate
from tests.statistics.planted import Design, observe, plant, slope

SMALL = Design(clusters=5, layouts=8, questions=3)


@pytest.fixture
def table(rng: np.random.Generator):
    """A small planted run."""
    return plant(slope(4, 0.2), SMALL, rng)


def test_observations_in_any_order_give_the_table_they_were_made_from(table, rng):
    """Positions, outcomes and shape come back exactly, whatever the order of the lines."""
    observations = observe(table)
    found = tabulate([observations[i] for i in rng.permutation(len(observations))])
    assert np.array_equal(found.source_CLQ, table.source_CLQ)
    assert np.array_equal(found.query_CLQ, table.query_CLQ)
    assert np.array_equal(found.outcomes["accuracy"], table.outcomes["accuracy"])
    assert np.array_equal(found.outcomes["logprob"], table.outcomes["logprob"])
    assert (found.n_clusters, found.n_blocks, found.n_layouts, found.dropped_blocks) == (5, 15, 8, 0)


def test_blocks_with_a_missing_or_repeated_layout_are_dropped_and_counted(table):
    """Two incomplete blocks go, their clusters keep the questions that are whole."""
    observations = observe(table)
    missing = next(o for o in observations if o.cluster == "c0001" and o.layout == 3)
    repeated = next(o for o in observations if o.cluster == "c0002" and o.block.endswith("k001"))
    found = tabulate([o for o in observations if o is not missing] + [repeated])
    assert (found.n_blocks, found.dropped_blocks) == (13, 2)
    assert found.asked_CQ.sum(axis=1).tolist() == [3, 2, 2, 3, 3]
    assert found.outcomes["accuracy"][~found.asked].sum() == 0


def test_a_layout_that_failed_everywhere_costs_no_block(table):
    """When no block has layout 5, the usual layouts are the other seven."""
    found = tabulate([o for o in observe(table) if o.layout != 5])
    assert (found.n_layouts, found.n_blocks, found.dropped_blocks) == (7, 15, 0)


def test_an_outcome_that_some_trials_lack_is_left_out(table):
    """Log-probabilities count only where every trial has one."""
    observations = observe(table)
    observations[7] = observations[7].model_copy(update={"logprob": None})
    assert tabulate(observations).outcomes.keys() == {"accuracy", "candidate_accuracy"}


@pytest.mark.parametrize("pick", ["none", "two conditions", "one layout"])
def test_what_cannot_be_compared_is_refused_in_one_line(table, pick):
    """No observations, several conditions or a single layout name what is wrong."""
    observations = {
        "none": [],
        "two conditions": observe(table) + observe(table, condition="other"),
        "one layout": [o for o in observe(table) if o.layout == 0],
    }[pick]
    with pytest.raises(UsageError, match="condition") as error:
        tabulate(observations)
    assert "\n" not in str(error.value)
