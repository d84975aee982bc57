"""Residues of source and query that act together are found where the layouts can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phasescope.reporting.sentences import sentence
from phasescope.statistics import analyse
from phasescope.statistics.fold import identified_fold
from phasescope.statistics.interaction import find_interaction
from phasescope.statistics.verdict import judge
from tests.statistics.planted import CLUSTERED, flat, observe, one_bad_phase, plant

MOVING = replace(CLUSTERED, query_moves=True)


@pytest.mark.parametrize("own", [False, True])
def test_a_sum_is_found_that_cancels_in_either(own, rng):
    """A wave in (source + query) mod 8; its size without noise is a share of accuracy."""
    table = plant(flat(8), replace(MOVING, together=1.5, own_layouts=own), rng)
    found = find_interaction(table, "accuracy", identified_fold(table, "source", 8), rng, 99)
    assert found.p_value == 0.01
    assert found.together == "sum"
    assert found.spread == pytest.approx(0.1, abs=0.04)


def test_a_sum_makes_a_condition_phase_sensitive(rng):
    """Though the phases of the source alone are even; the sentence says on what recall depends."""
    rows = observe(plant(flat(8), replace(MOVING, together=2.0), rng))
    findings = analyse(rows, stride=8, rng=rng, draws=199)
    judgement = judge(findings)
    assert (judgement.state, judgement.period, judgement.together) == ("sensitive", 8, "sum")
    assert "recall depends on (source + query) mod 8 and on neither position alone" in sentence(findings)


def test_a_phase_of_the_source_alone_is_no_interaction(rng):
    """Five runs with one bad phase: by chance one in twenty would be significant."""
    tables = [plant(one_bad_phase(8, 0.3), MOVING, rng) for _ in range(5)]
    p = [find_interaction(t, "accuracy", identified_fold(t, "source", 8), rng, 99).p_value for t in tables]
    assert sum(value is not None and value <= 0.05 for value in p) <= 2


def test_a_query_that_stays_where_it_is_tells_nothing(rng):
    """The sum is then the source's own residue."""
    table = plant(flat(8), CLUSTERED, rng)
    found = find_interaction(table, "accuracy", identified_fold(table, "source", 8), rng, 99)
    assert (found.p_value, found.together, found.spread) == (None, None, None)
