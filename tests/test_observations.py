"""Observations as columns are the observations that were put in."""

from __future__ import annotations

import numpy as np

from phasescope.columns import arrow_table, observation_table
from phasescope.observations import MISSING, Observations
from phasescope.records import Observation
from tests.statistics.planted import Design, flat, observe, plant

BARE = Observation(
    condition="b",
    trial="t",
    cluster="c",
    block="q",
    layout=0,
    source_position=3,
    query_position=9,
    prompt_tokens=10,
    score=1.0,
)


def test_what_goes_in_comes_out(rng):
    """One by one, in slices, and where values are missing."""
    rows = [*observe(plant(flat(4), Design(clusters=3, questions=2), rng)), BARE]
    kept = Observations(rows)
    assert len(kept) == len(rows)
    assert list(kept) == rows
    assert kept == rows
    assert kept[-1] == BARE
    assert kept[2:5] == rows[2:5]
    assert kept != rows[:-1]
    assert Observations.of(kept) is kept


def test_columns_are_arrays(rng):
    """Missing integers and texts are marked, missing numbers are not numbers, and texts are kept once."""
    rows = [*observe(plant(flat(4), Design(clusters=3, questions=2), rng)), BARE]
    kept = Observations(rows)
    assert kept.integers("source_position").tolist() == [one.source_position for one in rows]
    assert kept.integers("answer")[-1] == MISSING
    assert np.isnan(kept.numbers("logprob")[-1])
    assert np.isnan(kept.numbers("margin")).all()
    codes, texts = kept.texts("cluster")
    assert [texts[code] for code in codes] == [one.cluster for one in rows]
    assert texts == ["c0000", "c0001", "c0002", "c"]
    assert kept.texts("text")[0].tolist() == [MISSING] * len(rows)


def test_the_table_is_that_of_the_records(rng):
    """Column for column, and type for type."""
    rows = [*observe(plant(flat(4), Design(clusters=2, questions=2), rng)), BARE]
    assert observation_table([Observations(rows[:5]), Observations(rows[5:])]).equals(
        arrow_table(Observation, rows)
    )
    assert observation_table([]).schema == arrow_table(Observation, []).schema
