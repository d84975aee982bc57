"""By what the failures of an engine fold: `fails exactly where the prompt's length is ≡ 3 mod 4`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..records import Record

UNLIKELY = (
    2000  # ways to place the failures among the cases; with fewer, some stride separates them by chance
)
CANDIDATES = (*range(2, 17), 32, 64, 128)
COORDINATES = {
    "length": "the prompt's length",
    "cut": "the number of tokens before the cut",
    "rest": "the number of tokens behind the cut",
    "pads": "the number of left pads",
}
Facts = Sequence[tuple[Mapping[str, int], bool]]
"""Coordinates of a case, and whether it failed."""


class Pattern(Record):
    """Failures and their residues.

    Attributes:
        coordinate: what was folded: `length`, `cut`, `rest` or `pads`.
        stride: the modulus; null for a threshold.
        residues: at which it fails.
        least: from which number on it fails, for a threshold.
        failed: cases that failed, all of them there.
        passed: cases that passed, all of them elsewhere.
        condition: what all these cases have in common; empty where they are all cases.
    """

    coordinate: str
    stride: int | None
    residues: tuple[int, ...] = ()
    least: int | None = None
    failed: int
    passed: int
    condition: str = ""

    def words(self) -> str:
        """As a sentence continues after `fails`."""
        what = COORDINATES[self.coordinate]
        others = sorted(set(range(self.stride or 0)) - set(self.residues))
        if self.stride is None:
            where = f"exactly where {what} is {self.least} or more"
        elif len(self.residues) > len(others):
            where = f"exactly where {what} is not ≡ {ranges(others)} mod {self.stride}"
        else:
            where = f"exactly where {what} is ≡ {ranges(self.residues)} mod {self.stride}"
        support = f"{self.failed} of {self.failed} such cases, 0 of {self.passed} others"
        return f"{where}{self.condition and f', {self.condition}'} ({support})"


def fold(facts: Facts, strides: Iterable[int] = ()) -> Pattern | None:
    """The smallest stride whose residues separate failures from passes exactly; without one, a threshold.

    A residue is named only where two cases or more stand behind it, and a pattern only where few cases would
    not show one by chance. Strides are tried from the smallest on, and for each the coordinates in their order.

    Args:
        facts: of every case.
        strides: to be tried beside 2 to 16, 32, 64 and 128.
    """
    if math.comb(len(facts), sum(bad for _, bad in facts)) < UNLIKELY:
        return None
    longer = [(at, bad) for at, bad in facts if at.get("rest", 2) > 1]
    for chosen, condition in ((facts, ""), (longer, "and more than one token follows")):
        for stride in sorted({*CANDIDATES, *strides}):
            for coordinate in COORDINATES:
                found = _separate(chosen, coordinate, stride)
                if found:
                    return found.model_copy(update={"condition": condition})
    return next(filter(None, (_threshold(facts, coordinate) for coordinate in COORDINATES)), None)


def _separate(facts: Facts, coordinate: str, stride: int) -> Pattern | None:
    """The pattern of one stride, if every residue either always fails or never does."""
    sides: dict[int, list[bool]] = {}
    for at, bad in facts:
        if coordinate not in at:
            return None
        sides.setdefault(at[coordinate] % stride, []).append(bad)
    if any(len(set(side)) > 1 for side in sides.values()):
        return None
    failing = tuple(sorted(residue for residue, side in sides.items() if side[0]))
    if not failing or len(failing) == len(sides) or len(sides) < stride:
        return None
    if any(len(sides[residue]) < 2 for residue in failing):
        return None
    failed = sum(len(sides[residue]) for residue in failing)
    return Pattern(
        coordinate=coordinate, stride=stride, residues=failing, failed=failed, passed=len(facts) - failed
    )


def _threshold(facts: Facts, coordinate: str) -> Pattern | None:
    """Where everything fails from one number on, and nothing below it."""
    if any(coordinate not in at for at, _ in facts):
        return None
    bad = [at[coordinate] for at, failed in facts if failed]
    good = [at[coordinate] for at, failed in facts if not failed]
    if not bad or not good or max(good) >= min(bad):
        return None
    return Pattern(coordinate=coordinate, stride=None, least=min(bad), failed=len(bad), passed=len(good))


def ranges(values: Iterable[int]) -> str:
    """Whole numbers in a line: 1 to 4, 7, 9 to 12."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], value]
        else:
            runs.append([value])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
