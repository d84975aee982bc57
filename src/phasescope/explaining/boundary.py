"""The window boundary, and gates rolled over their slots; numpy only. Suffixes: P phases, S slots of a roll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from ..grid import WindowGrid
from ..statistics.fold import phase_rates
from ..statistics.intervals import CONFIDENCE, Rates, clustered_t
from ..statistics.table import Coordinate, Floats, Outcome, Table
from .result import Contrast, Interval, Roll
from .specialisation import contrast, lost

MOST_ROLLS = 8
"""Rolls that are tried; a wider window is rolled by evenly spread numbers of slots."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Positions modulo the stride at which a window's end stands between a key and its value.

    Attributes:
        parted: no window holds both key and value.
        closed: the key's window is closed, so that its raw token is gone, when the value's token is read.
        stride: of the grid, after which they repeat.
    """

    parted: tuple[int, ...]
    closed: tuple[int, ...]
    stride: int = 1

    def within(self, modulus: int) -> Boundary:
        """The same positions folded by a multiple of the stride."""
        starts = range(0, modulus, self.stride)
        return Boundary(
            tuple(start + phase for start in starts for phase in self.parted),
            tuple(start + phase for start in starts for phase in self.closed),
            modulus,
        )


def boundary(grid: WindowGrid, distance: int = 1, raw: int = 0) -> Boundary:
    """The boundary phases of a grid for keys whose value stands so many tokens behind.

    A query that completes a window reads it as an entry (`closes` ≤ q), so that a value in a window's last slot finds
    its key folded already, beside the value whose key lies in the window before.

    Args:
        grid: of one head.
        distance: from the key's token to the value's.
        raw: the last so many tokens are read raw, whether folded or not.
    """
    far = 2 * grid.stride * (grid.width // grid.stride + 2)  # well inside: the first windows may begin early
    parted, closed = [], []
    for position in range(far, far + grid.stride):
        windows = range((position + grid.shift) // grid.stride + 1)
        holding = [w for w in windows if grid.start(w) <= position <= grid.closes(w)]
        if not any(position + distance <= grid.closes(w) for w in holding):
            parted.append(position % grid.stride)
        if any(grid.closes(w) <= position + distance for w in holding) and distance + 1 > raw:
            closed.append(position % grid.stride)
    return Boundary(tuple(sorted(parted)), tuple(sorted(closed)), grid.stride)


def rolls_of(width: int) -> list[int]:
    """By how many slots a gate of that width is rolled: every number, or evenly spread ones."""
    if width <= MOST_ROLLS:
        return list(range(1, width))
    return sorted({round(width * k / MOST_ROLLS) for k in range(1, MOST_ROLLS)})


def rolled_curves(
    base: Table,
    rolls: Sequence[tuple[int, Table]],
    outcome: Outcome,
    phases: Sequence[int],
    *,
    stride: int,
    coordinate: Coordinate = "source",
) -> list[Roll]:
    """Each rolled curve against the untouched one, on the same trials.

    Args:
        base: the untouched model.
        rolls: number of slots and table of each roll.
        outcome: what is compared.
        phases: the boundary phases, that are to be won back.
        stride: modulus of the phases.
        coordinate: the position that is folded.
    """
    confidence = 1 - (1 - CONFIDENCE) / max(len(rolls), 1)
    _, untouched = phase_rates(base, outcome, coordinate, stride)
    found = []
    for slots, table in rolls:
        _, at_phase = phase_rates(table, outcome, coordinate, stride)
        change = lost(table, base, outcome)
        mean = partial(_mean, change, outcome, stride=stride, coordinate=coordinate, confidence=confidence)
        found.append(
            Roll(
                slots=slots,
                curve=at_phase.rate_R,
                mean=mean(range(stride)),
                won=mean(phases) if phases else None,
                stays=_correlation(at_phase.rate_R, untouched.rate_R),
                moves=_correlation(at_phase.rate_R, np.roll(untouched.rate_R, slots % stride)),
            )
        )
    return found


def at_boundary(
    table: Table, outcome: Outcome, phases: Sequence[int], *, stride: int, coordinate: Coordinate = "source"
) -> Contrast | None:
    """Boundary phases less the others; None where there is no boundary, or nothing else."""
    return contrast(table, outcome, _mask(phases, stride), stride=stride, coordinate=coordinate)


def _mean(
    change: Table,
    outcome: Outcome,
    phases: Sequence[int],
    *,
    stride: int,
    coordinate: Coordinate,
    confidence: float,
) -> Interval:
    """Mean over some phases, each weighing the same."""
    phase_P, rate = phase_rates(change, outcome, coordinate, stride)
    chosen_P = _mask(phases, stride)[phase_P]
    weight_P = chosen_P / chosen_P.sum()
    one = Rates(
        np.array([rate.rate_R @ weight_P]),
        rate.trials_R.sum(keepdims=True),
        rate.deviation_CR @ weight_P[:, None],
    )
    if len(one.deviation_CR) < 2:
        return Interval(value=float(one.rate_R[0]))
    low, high = clustered_t(one, confidence)
    return Interval(value=float(one.rate_R[0]), low=float(low[0]), high=float(high[0]))


def _mask(phases: Sequence[int], stride: int) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(stride, dtype=bool)
    chosen[list(phases)] = True
    return chosen


def _correlation(one: Floats, other: Floats) -> float | None:
    if np.ptp(one) < 1e-12 or np.ptp(other) < 1e-12:
        return None
    return float(np.corrcoef(one, other)[0, 1])
