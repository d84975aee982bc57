"""Lists, numbers, sizes and times in words."""

from __future__ import annotations

import pytest

from phasescope.wording import columns, listed, number, p_words, size_words, time_words


@pytest.mark.parametrize(
    ("values", "most", "words"),
    [
        ([], None, "none"),
        (["a"], None, "a"),
        (["a", "b"], None, "a and b"),
        (["a", "b", "c"], None, "a, b and c"),
        ([1, 2, 3], 3, "1, 2 and 3"),
        (range(9), 3, "0, 1, 2, …"),
    ],
)
def test_values_are_listed_as_a_sentence_does(values, most, words):
    """None, one, several, and too many to name."""
    assert listed(values, most) == words


def test_cells_stand_in_columns_without_blanks_at_the_end():
    """Flush right, or left."""
    rows = [("a", "long"), ("word", "b")]
    assert columns(rows) == ["   a  long", "word     b"]
    assert columns(rows, left=True) == ["a     long", "word  b"]


def test_numbers_have_a_true_minus_and_none_before_zero():
    """Rounded to the given decimals."""
    assert [number(-1.25), number(-0.01), number(2.345, 2)] == ["−1.2", "0.0", "2.35"]


def test_probabilities_sizes_and_times_have_one_form_each():
    """Whichever command says them."""
    assert [p_words(0.0004), p_words(0.04)] == ["p < 0.001", "p = 0.040"]
    assert [size_words(512), size_words(2.5e6), size_words(141e9)] == ["0.5 kB", "2.5 MB", "141.0 GB"]
    times = [time_words(None), time_words(2.5), time_words(90), time_words(5400)]
    assert times == ["unknown", "2.50 seconds", "1.50 minutes", "1.50 hours"]
