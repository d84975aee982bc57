"""A failing case is made as small as it still fails, and left as it is where nothing can go."""

from phasescope.checking.cases import PromptCase
from phasescope.checking.shrink import shrunk


def test_only_what_the_failure_needs_is_left() -> None:
    """One token is at fault; whatever stands before and behind it goes."""
    case = shrunk(PromptCase(tuple(range(50))), None, lambda smaller: 17 in smaller.prompt)
    assert case.prompt == (17,)


def test_whole_strides_go_first_so_that_the_residue_stays() -> None:
    """A failure at lengths of 3 modulo 8 is shown by three tokens."""
    case = shrunk(PromptCase(tuple(range(43))), 8, lambda smaller: len(smaller.prompt) % 8 == 3)
    assert len(case.prompt) == 3


def test_left_pads_keep_their_number() -> None:
    """A neighbour that is longer by the pads is cut with the prompt."""
    padded = PromptCase(tuple(range(20)), other=tuple(range(23)), pads=3)
    case = shrunk(padded, None, lambda smaller: len(smaller.prompt) >= 5)
    assert len(case.prompt) == 5
    assert len(case.other) == 8
    assert case.pads == 3


def test_a_case_that_fails_only_as_a_whole_is_left() -> None:
    """No smaller case fails."""
    case = PromptCase(tuple(range(12)), cut=6)
    assert shrunk(case, 4, lambda smaller: False) == case
