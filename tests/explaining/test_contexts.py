"""Contexts of trials, read once for all questions that share them."""

from __future__ import annotations

from phasescope.explaining.contexts import value_position


def test_a_fact_stands_where_its_answer_first_follows_its_key(trials):
    """The value's place is read off the prompt, whatever protocol made it."""
    assert all(value_position(trial) == trial.source_position + 1 for trial in trials)
