"""The window boundary, and gates rolled over their slots; numpy only. Suffixes: P phases, S slots of a roll."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ..grid import WindowGrid
from ..statistics.intervals import CONFIDENCE
from ..statistics.table import Floats, Table
from .result import Interval, Roll
from .specialisation import PhaseAxis, lost, phases_mask, weighted

MOST_ROLLS = 8
"""Rolls that are tried; a wider window is rolled by evenly spread numbers of slots."""


def boundary(
    grid: WindowGrid, modulus: int, raw: int = 0, *, closing: bool = True
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The phases at which a window's end stands between a key and the value right behind it.

    Where the query that completes a window reads it as an entry (its last token ≤ q), a value in a window's last slot
    finds its key compressed already, beside the value whose key lies in the window before; where only the next query
    does, that value still reads its key.

    Args:
        grid: of one head.
        modulus: of the phases, a multiple of the grid's stride.
        raw: the last so many tokens are read uncompressed, whether an entry holds them or not.
        closing: whether an entry is visible from the last token of its window on, or from the next.

    Returns:
        *parted*, no window holds both key and value; and *closed*, the key's entry is visible, so that its
        uncompressed token is gone, when the value's token is read.
    """
    far = modulus * (2 * grid.width // modulus + 2)  # well inside: the first windows may begin early
    parted, closed = [], []
    for position in range(far, far + modulus):
        newest = (position + grid.shift) // grid.stride
        windows = range(newest - grid.width // grid.stride, newest + 1)
        last = [grid.closes(w) for w in windows if grid.start(w) <= position <= grid.closes(w)]
        if not any(position < end for end in last):
            parted.append(position - far)
        if any(end + (not closing) <= position + 1 for end in last) and raw < 2:
            closed.append(position - far)
    return tuple(parted), tuple(closed)


def rolls_of(width: int) -> list[int]:
    """By how many slots a gate of that width is rolled: every number, or evenly spread ones."""
    if width <= MOST_ROLLS:
        return list(range(1, width))
    return sorted({round(width * k / MOST_ROLLS) for k in range(1, MOST_ROLLS)})


def rolled_curves(
    base: Table,
    rolls: Sequence[tuple[int, Table]],
    phases: Sequence[int],
    axis: PhaseAxis,
) -> list[Roll]:
    """The accuracy with rolled gates against the untouched one, on the same trials.

    Args:
        base: the untouched model.
        rolls: number of slots and table of each roll.
        phases: the boundary phases, that are to be won back.
        axis: the phases.
    """
    confidence = 1 - (1 - CONFIDENCE) / max(len(rolls), 1)
    _, untouched = axis.rates(base)
    found = []
    for slots, table in rolls:
        _, at_phase = axis.rates(table)
        mean = partial(_mean, lost(table, base, "accuracy"), axis, confidence)
        found.append(
            Roll(
                slots=slots,
                curve=at_phase.rate_R,
                mean=mean(range(axis.stride)),
                won=mean(phases) if phases else None,
                stays=_correlation(at_phase.rate_R, untouched.rate_R),
                moves=_correlation(at_phase.rate_R, np.roll(untouched.rate_R, slots % axis.stride)),
            )
        )
    return found


def _mean(change: Table, axis: PhaseAxis, confidence: float, phases: Sequence[int]) -> Interval:
    """Mean over some phases, each weighing the same."""
    phase_P, rate = axis.rates(change)
    chosen_P = phases_mask(phases, axis.stride)[phase_P]
    return weighted(rate, chosen_P / chosen_P.sum(), confidence)[1]


def _correlation(one: Floats, other: Floats) -> float | None:
    if np.ptp(one) < 1e-12 or np.ptp(other) < 1e-12:
        return None
    return float(np.corrcoef(one, other)[0, 1])
