"""Depth of the residue groups."""

from __future__ import annotations

import numpy as np
import pytest

from phasescope.errors import UsageError
from phasescope.statistics import position_balance
from tests.statistics.planted import Design, flat, observe, plant


def test_balanced_positions_have_equal_mean_and_sd(rng):
    """24 contexts whose sources start at every residue once agree to half a token."""
    table = plant(flat(8), Design(clusters=24, layouts=24, questions=12), rng)
    balance = position_balance(observe(table))
    assert balance.residues == tuple(range(24))
    assert balance.mean_spread < 0.5
    assert balance.sd_spread < 0.5


def test_a_fixed_start_is_caught(rng):
    """Sources that all start at 0 are 23 tokens deeper at the last residue than at the first."""
    table = plant(flat(8), Design(clusters=4, layouts=24, questions=1), rng)
    table.source_CLQ[:] = np.arange(24)[None, :, None]
    assert position_balance(observe(table)).mean_spread == 23


def test_the_query_can_be_compared_instead(rng):
    """A query that never moves has one residue only."""
    balance = position_balance(observe(plant(flat(8), Design(clusters=4), rng)), 24, "query")
    assert len(balance.residues) == 1


def test_without_observations_there_is_nothing_to_compare():
    """One line says so."""
    with pytest.raises(UsageError, match="no observations"):
        position_balance([])
