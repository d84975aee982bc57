"""Differences between readings: up to where they part, over whole vocabularies and over lists."""

import numpy as np
import pytest

from phasescope.checking.engine import Continuation, gap, row_gap


def reading(*rows: list[float], tokens: tuple[int, ...] = ()) -> Continuation:
    return Continuation(tuple(np.array(row) for row in rows), tokens or (0,) * len(rows))


def test_the_gap_is_the_largest_difference_of_any_log_probability() -> None:
    """Over all rows and all tokens."""
    assert gap(reading([-1, -2], [-3, -4]), reading([-1, -2.5], [-3, -3])) == 1.0


def test_behind_a_different_token_nothing_is_compared() -> None:
    """The row in which they part counts; the next one answers another question."""
    one = reading([-1.0, -1.1], [-5, -5], tokens=(0, 0))
    other = reading([-1.1, -1.0], [-9, -9], tokens=(1, 0))
    assert gap(one, other) == pytest.approx(0.1)


def test_impossible_tokens_are_equal_and_no_number_is_far() -> None:
    """−∞ on both sides is no difference; NaN, and −∞ on one side, is an infinite one."""
    assert row_gap(np.array([-np.inf, 0]), np.array([-np.inf, 0])) == 0
    assert row_gap(np.array([-np.inf, 0]), np.array([-1, 0])) == np.inf
    assert row_gap(np.array([np.nan, 0]), np.array([-1, 0])) == np.inf


def test_an_engine_that_raises_is_infinitely_far() -> None:
    """Unless both raise the same."""
    broken = Continuation((), (), failed="RuntimeError: shapes")
    assert gap(broken, reading([0])) == np.inf
    assert gap(broken, broken) == 0


def test_a_token_that_one_list_names_is_at_most_the_least_of_the_other() -> None:
    """Two servers' lists of two: the third token may have been just below."""
    assert row_gap({"a": -1, "b": -2}, {"a": -1, "c": -2}) == 0
    assert row_gap({"a": -1, "b": -1.5}, {"a": -1, "c": -4}) == 2.5
    assert row_gap({}, {"a": -1.0}) == np.inf
