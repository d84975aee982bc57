"""A failing case with as few tokens as still fail."""

from __future__ import annotations

from collections.abc import Callable

from .cases import PromptCase

TRIES = 60
"""Sizes of pieces that are tried at most."""

Fails = Callable[[PromptCase], bool]


def shrunk(case: PromptCase, stride: int | None, fails: Fails) -> PromptCase:
    """The case without the pieces that it fails without, larger ones first.

    Pieces of whole strides come first, as they leave every residue as it is.
    """
    tries, whole = TRIES, stride or 1
    for unit in sorted({whole, 1}, reverse=True):
        size = len(case.prompt) // 2 // unit * unit or unit
        while size:
            smaller = _smaller(case, size, fails)
            tries -= 1
            if tries <= 0:
                break
            if smaller is None:
                size = size // 2 // unit * unit
            else:
                case = smaller
    return case


def _smaller(case: PromptCase, size: int, fails: Fails) -> PromptCase | None:
    """The case without one piece of this size, if it still fails."""
    for start in sorted({0, case.cut, max(0, len(case.prompt) - size)}):
        smaller = _without(case, start, size)
        if smaller is not None and fails(smaller):
            return smaller
    return None


def _without(case: PromptCase, start: int, size: int) -> PromptCase | None:
    if start + size > len(case.prompt):
        return None
    smaller = case.without(start, size)
    if smaller is None or case.pads is None:
        return smaller
    kept = case.other[: len(case.other) - size]  # as many left pads as before
    return PromptCase(smaller.prompt, other=kept, pads=case.pads)
