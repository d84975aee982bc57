"""Lengths and cuts: around every boundary, inside the prompt, and the same for the same generator."""

import numpy as np
import pytest

from phasescope import UsageError
from phasescope.checking.cases import PromptCase, PromptPlan


def plan(seed: int = 0, strides: tuple[int, ...] = (4, 16), longest: int = 70) -> PromptPlan:
    return PromptPlan(strides, longest, tuple(range(50)), np.random.default_rng(seed))


def test_every_first_boundary_of_every_grid_is_a_length() -> None:
    """S − 1, S, S + 1 and 2S − 1, 2S, 2S + 1, for joint strides too."""
    lengths = set(plan(strides=(4, 6)).lengths())
    for stride in (4, 6, 12):
        assert {stride - 1, stride, stride + 1, 2 * stride - 1, 2 * stride, 2 * stride + 1} <= lengths


def test_cuts_lie_inside_their_prompts() -> None:
    """With as many tokens behind as asked for."""
    for case in plan().cut_cases(other=5, rest=2):
        assert case.cut is not None
        assert 1 <= case.cut <= len(case.prompt) - 2
        assert 1 <= len(case.other) <= 5


def test_other_tokens_part_from_the_prompt_at_the_cut() -> None:
    """Else more would be shared than the case says, and a fault of shared tokens would not show."""
    few = PromptPlan((4,), 70, tuple(range(8)), np.random.default_rng(0), cases=200)
    drawn = list(few.cut_cases(other=3))
    drawn += list(few.cut_sweep(drawn[0]))
    assert all(case.other[0] != case.prompt[case.cut] for case in drawn)


def test_the_same_seed_draws_the_same_cases() -> None:
    """And another seed others."""
    assert list(plan(1).cut_cases()) == list(plan(1).cut_cases())
    assert list(plan(1).cut_cases()) != list(plan(2).cut_cases())


def test_a_redrawn_case_keeps_its_shape() -> None:
    """Equal tokens stay equal to each other, so that a prompt that repeats itself still does."""
    case = PromptCase((1, 2, 1, 2), cut=3, other=(2, 7))
    drawn = case.redrawn(tuple(range(50)), np.random.default_rng(0))
    assert drawn.prompt[0] == drawn.prompt[2] != drawn.prompt[1] == drawn.prompt[3] == drawn.other[0]
    assert drawn.prompt != case.prompt


def test_taking_tokens_out_moves_the_cut() -> None:
    """Before it, across it, behind it; not so many that a piece is empty."""
    case = PromptCase(tuple(range(10)), cut=4)
    assert (case.without(0, 3).prompt, case.without(0, 3).cut) == (tuple(range(3, 10)), 1)
    assert (case.without(3, 3).prompt, case.without(3, 3).cut) == ((0, 1, 2, 6, 7, 8, 9), 3)
    assert case.without(6, 4).cut == 4
    assert case.without(0, 4) is None
    assert case.without(4, 6) is None


@pytest.mark.parametrize(
    ("strides", "longest", "ids"),
    [((1,), 70, 50), ((5000,), 70, 50), ((2.5,), 70, 50), ((True,), 70, 50), ((4,), 8, 50), ((4,), 70, 3)],
)
def test_a_plan_that_cannot_be_is_refused(strides, longest, ids) -> None:
    """In one line."""
    with pytest.raises(UsageError):
        PromptPlan(strides, longest, tuple(range(ids)), np.random.default_rng(0))
