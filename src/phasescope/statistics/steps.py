"""Steps in position: a cliff, a plateau or a bump, which no smooth trend takes up and which does not repeat.

A sliding window, an eviction or a truncation inside the span of the layouts makes recall fall at one position. Folded
by a stride of half the span it looks like a period: a step of 2 logits is named a period in 19 of 20 planted runs.
Folds and steps therefore compete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .designs import Groups, joint_gram, permuted_sums, trend_cross
from .fold import centred
from .permutation import permutation_p
from .table import Coordinate, Floats, Ints, Outcome, Table

BINS = 64
"""Positions of a coordinate between which a step may lie; more are thinned out evenly."""
PRICE = 8.0
"""Units of noise that a step must explain beyond the others: the largest of some hundred chance steps has about 8."""
MOST = 4
"""Steps that are looked for together; two make a bump."""
LEFT = 0.02
"""Share of a step's own variation that blocks, trend and other steps must leave, for it to be one of its own."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        along: what is counted: the `source`'s or the `query`'s position, their `distance`, or the `offset` of the
            position from the block's first.
        after: the last value before the step, in tokens.
        size: by how much the outcome is higher after it.
    """

    along: str
    after: int
    size: float


@dataclass(frozen=True)
class Steps:
    """The steps that were found, and the test of whether there is any.

    Attributes:
        p_value: of the largest single step; None where the layouts leave room for none.
        steps: those that are worth their price, the most striking first.
    """

    p_value: float | None
    steps: tuple[Step, ...]

    def detail(self) -> dict[str, Any]:
        """The steps, as a finding records them."""
        return {"steps": [{"along": s.along, "after": s.after, "size": s.size} for s in self.steps]}


@dataclass(frozen=True)
class _Coordinate:
    """One coordinate cut into bins: a step after bin b is the sum of the indicators of all later bins."""

    name: str
    position_CLQ: Ints
    edge_B: Ints
    groups: Groups


def find_steps(
    table: Table,
    outcome: Outcome,
    coordinate: Coordinate,
    values_CLQ: Floats,
    trend_NK: Floats,
    rng: np.random.Generator,
    draws: int,
) -> Steps:
    """Look for steps beyond a trend.

        z_k² = (xᵀ_k y)² / xᵀ_k x_k / noise_k        x_k = 1[position > k] without block means and trend

    noise_k is the mean of the same over all other permutations of layouts within clusters. The largest z² is tested by
    its place among those of the permutations. Steps are then chosen one after the other, each time moving those that
    are there to where all explain most together, as long as another one explains `PRICE` units of noise.

    Args:
        table: the trials.
        outcome: which outcome; the sizes of steps are in its units.
        coordinate: the position that the protocol moves; steps are looked for along the other positions too.
        values_CLQ: the outcome without block means, trend, and whatever else it should be free of.
        trend_NK: orthonormal columns of the trend.
        rng: of the permutations.
        draws: how many.
    """
    cut = _coordinates(table, coordinate)
    if not cut:
        return Steps(None, ())
    groups = [one.groups for one in cut]
    cross_KB = np.hstack([trend_cross(trend_NK, one) for one in groups])
    within_BB = joint_gram(groups)
    later_BK = _later([one.count for one in groups])
    gram_KK = later_BK.T @ (within_BB - cross_KB.T @ cross_KB) @ later_BK
    whole_K, own_K = np.diag(later_BK.T @ within_BB @ later_BK), np.diag(gram_KK)
    usable = np.flatnonzero(own_K > LEFT * np.maximum(whole_K, 1.0))
    if not len(usable):
        return Steps(None, ())
    parts = permuted_sums(values_CLQ, [*groups, trend_NK], rng, draws)
    sum_DK = ((np.hstack(parts[:-1]) - parts[-1] @ cross_KB) @ later_BK)[:, usable]
    gram_KK = gram_KK[np.ix_(usable, usable)]
    square_DK = sum_DK**2 / np.diag(gram_KK)
    # Each draw is measured by all others: one that were part of its own measure would be damped, and the observed not.
    others_DK = np.maximum(square_DK.sum(axis=0) - square_DK, 1e-300) / draws
    p_value = permutation_p((square_DK / others_DK).max(axis=1))
    noise_K = others_DK[0]
    chosen = _chosen(sum_DK[0], gram_KK, noise_K)
    size_G = np.linalg.solve(gram_KK[np.ix_(chosen, chosen)], sum_DK[0, chosen])
    named = [(one.name, int(edge)) for one in cut for edge in one.edge_B[:-1]]
    places = [named[usable[k]] for k in chosen]
    steps = (Step(along, after, size) for (along, after), size in zip(places, size_G.tolist(), strict=True))
    return Steps(p_value, tuple(steps))


def step_columns(table: Table, coordinate: Coordinate, steps: Sequence[Step], trend_NK: Floats) -> Floats:
    """An orthonormal basis of the trend and some steps, within blocks; shape [N, K]."""
    positions = dict(_positions(table, coordinate))
    columns = [
        centred((positions[step.along] > step.after).astype(np.float64), table).reshape(-1) for step in steps
    ]
    basis_NK, size_KK = np.linalg.qr(np.column_stack([trend_NK, *columns]))
    return basis_NK[:, np.abs(np.diag(size_KK)) > 1e-9]


def _positions(table: Table, coordinate: Coordinate) -> list[tuple[str, Ints]]:
    """What a step may be along."""
    moved = table.position(coordinate)
    return [
        ("source", table.source_CLQ),
        ("query", table.query_CLQ),
        ("distance", table.query_CLQ - table.source_CLQ),
        ("offset", moved - moved.min(axis=1, keepdims=True)),
    ]


def _coordinates(table: Table, coordinate: Coordinate) -> list[_Coordinate]:
    """Those that vary within blocks, each cut into bins."""
    found = []
    for name, position_CLQ in _positions(table, coordinate):
        seen = position_CLQ[table.asked]
        edge_B = np.unique(seen)
        if len(edge_B) < 2 or not np.ptp(position_CLQ, axis=1).any():
            continue
        if len(edge_B) > BINS:
            edge_B = edge_B[np.unique(np.linspace(0, len(edge_B) - 1, BINS).round().astype(int))]
        label_CLQ = np.where(table.asked, np.searchsorted(edge_B, position_CLQ), -1)
        found.append(_Coordinate(name, position_CLQ, edge_B, Groups(label_CLQ, len(edge_B))))
    return found


def _later(counts: list[int]) -> Floats:
    """Which bins lie after each edge, for coordinates one after the other; shape [bins, edges]."""
    parts = [np.tri(count, count - 1, -1) for count in counts]
    later_BK = np.zeros((sum(counts), sum(counts) - len(counts)))
    row = column = 0
    for part in parts:
        later_BK[row : row + part.shape[0], column : column + part.shape[1]] = part
        row, column = row + part.shape[0], column + part.shape[1]
    return later_BK


def _chosen(sum_K: Floats, gram_KK: Floats, noise_K: Floats) -> list[int]:
    """Forward selection with exchange: the steps that are worth their price."""
    chosen: list[int] = []
    explained = 0.0
    for _ in range(MOST):
        trial = [*chosen, _best(chosen, sum_K, gram_KK, noise_K)]
        for _ in range(3):
            for place in range(len(trial)):
                rest = trial[:place] + trial[place + 1 :]
                trial[place] = _best(rest, sum_K, gram_KK, noise_K)
        fit = np.linalg.lstsq(gram_KK[np.ix_(trial, trial)], sum_K[trial])[0]
        found = float(sum_K[trial] @ fit / noise_K.mean())
        if found - explained < PRICE:
            break
        chosen, explained = trial, found
    return chosen


def _best(given: list[int], sum_K: Floats, gram_KK: Floats, noise_K: Floats) -> int:
    """The step that explains most beyond those that are given."""
    left_K, size_K = sum_K, np.diag(gram_KK)
    if given:
        share_GK = np.linalg.lstsq(gram_KK[np.ix_(given, given)], gram_KK[given])[0]
        left_K = sum_K - sum_K[given] @ share_GK
        size_K = size_K - (gram_KK[given] * share_GK).sum(axis=0)
    apart = size_K > LEFT * np.diag(gram_KK)
    worth_K = np.where(apart, left_K**2 / np.where(apart, size_K, 1.0), 0.0) / noise_K
    # Coordinates may say the same: of equals the first, whatever the last digit.
    return int(np.argmax(worth_K >= worth_K.max() * (1 - 1e-9)))
