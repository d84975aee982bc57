"""An audit in one sentence."""

import pytest

from phasescope.auditing.sentence import verdict


@pytest.mark.parametrize(
    ("rows", "chosen", "said"),
    [
        (
            [(4, 1, 3, 1.0, 60)],
            (4,),
            "visits 1 of 4 phases at stride 4: a model blind at 3 phases would pass",
        ),
        (
            [(4, 4, 0, 0.4, 60)],
            (4,),
            "visits 4 of 4 phases at stride 4: a model that loses 40 points at one phase would pass the bar of 90 %",
        ),
        (
            [(2, 2, 0, 0.2, 60), (4, 4, 0, 0.4, 60), (16, 16, 1, 1.0, 60)],
            None,
            "visits every phase at all 3 strides; at stride 16 a model blind at 1 phase would pass",
        ),
        (
            [(2, 2, 0, 0.2, 60), (8, 7, 1, 1.0, 60), (16, 9, 7, 1.0, 60), (128, 60, 74, 1.0, 60)],
            None,
            "visits 7 of 8 phases at stride 8: a model blind at 1 phase would pass",
        ),
    ],
)
def test_the_sentence_names_what_would_pass(rows, chosen, said):
    """The strides that were asked for, or the smallest that is not fully visited."""
    assert verdict(rows, chosen, 0.9) == said


def test_strides_with_most_to_hide_come_first():
    """At most three of those that were asked for."""
    rows = [(s, s, 0, 0.4, 900) for s in (2, 3, 5)] + [(8, 4, 4, 1.0, 900)]
    said = verdict(rows, (2, 3, 5, 8), 0.9)
    assert said.startswith("visits 4 of 8 phases at stride 8")
    assert said.count("stride") == 3


def test_scores_have_the_last_word():
    """Nothing is added where there are none."""
    rows = [(4, 4, 0, 0.4, 60)]
    assert verdict(rows, (4,), 0.9, "its scores show no period").endswith("90 %; its scores show no period")
    assert verdict(rows, (4,), 0.9).endswith("90 %")
