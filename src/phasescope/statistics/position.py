"""Three ways in which recall may depend on position: a smooth trend, steps, and a period; each with its own p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .fold import centred, fold_table, trend_basis, within_blocks
from .intervals import SIGNIFICANT
from .period import Period, find_period
from .steps import PRICE, Steps, find_steps, step_columns
from .table import Coordinate, Floats, Outcome, Table

FEWEST = 500
"""Permutations that a test for steps has at least, if as many are drawn at all; else half as many as other tests."""


@dataclass(frozen=True)
class Depth:
    """A smooth trend.

    Attributes:
        change: of the outcome from the lowest to the highest position of a block, on average; None where positions
            do not vary.
        p_value: of a cubic in position.
    """

    change: float | None
    p_value: float | None


@dataclass(frozen=True)
class PositionEffects:
    """How an outcome depends on position.

    Attributes:
        depth: a smooth trend.
        steps_draws: permutations of the test for steps.
        steps: beyond the trend; and beyond the period, where that explains more.
        stand: whether the steps are significant, and not what a period explains better.
        lead: whether they explain more than a period does, so that phases are compared beyond them.
        period: beyond the trend; and beyond the steps, where they explain more.
        alone: the period as it looks if no steps are allowed for.
        trend_NK: orthonormal columns of the trend and of steps that stand.
    """

    depth: Depth
    steps: Steps
    steps_draws: int
    stand: bool
    lead: bool
    period: Period
    alone: Period
    trend_NK: Floats


def position_effects(
    table: Table,
    outcome: Outcome,
    coordinate: Coordinate,
    strides: Sequence[int],
    rng: np.random.Generator,
    draws: int,
) -> PositionEffects:
    """Tell a period from what merely depends on position.

    A fold of half the span takes up much of a step, and steps take up part of a period. Both therefore compete for
    the same curve, each at its price: two units of noise for a contrast of phases, `steps.PRICE` for a step. Where the
    steps explain more, the period is looked for again beyond them, and its p is doubled, as it is looked for twice;
    where the period explains more, steps are looked for in what it leaves.

    Args:
        table: the trials.
        outcome: which outcome.
        coordinate: which position the protocol moves.
        strides: that a period is looked for among.
        rng: of the permutations.
        draws: permutations per test.
    """
    alone = find_period(table, outcome, coordinate, strides, rng, draws)
    [further] = rng.spawn(1)  # so that the numbers of all other findings stay what they were
    trend = trend_basis(table, coordinate)
    values_CLQ = within_blocks(table.outcomes[outcome], table, trend)
    depth = _depth(table, outcome, coordinate, trend)
    fewer = max(draws // 2, min(draws, FEWEST))
    steps = find_steps(table, outcome, coordinate, values_CLQ, trend, further, fewer)
    beyond = step_columns(table, coordinate, steps.steps, trend)
    if _stand(steps) and _lead(table, coordinate, values_CLQ, alone, trend, beyond):
        period = alone
        if alone.stride is not None:
            period = find_period(table, outcome, coordinate, strides, further, draws, trend=beyond).twice()
        return PositionEffects(depth, steps, fewer, True, True, period, alone, beyond)
    if alone.stride is None:
        return PositionEffects(depth, steps, fewer, False, False, alone, alone, trend)
    _, rest_CLQ = fold_table(table, coordinate, alone.stride, trend).fit(values_CLQ)
    steps = find_steps(table, outcome, coordinate, rest_CLQ, trend, further, fewer)
    return PositionEffects(depth, steps, fewer, _stand(steps), False, alone, alone, trend)


def _lead(
    table: Table, coordinate: Coordinate, values_CLQ: Floats, period: Period, trend: Floats, beyond: Floats
) -> bool:
    """Whether steps explain as much as a period does, each less its price.

    The unit of noise is one for both: the mean over their columns of the variance over clusters of what both together
    leave. (Permuted outcomes hold the signal, which weighs more for the one than for the other.)
    """
    if period.best is None:
        return True
    fold = fold_table(table, coordinate, period.stride or period.best, trend)
    sum_S = fold.sums(values_CLQ)
    _, rest_CLQ = fold.fit(values_CLQ)
    step_NK = beyond[:, trend.shape[1] :]
    rest_CLQ = rest_CLQ - (step_NK @ (step_NK.T @ rest_CLQ.reshape(-1))).reshape(rest_CLQ.shape)
    score_CS, contrasts = fold.cluster_sums(rest_CLQ), fold.contrasts
    fold_noise = float(np.trace(fold.inverse_SS @ score_CS.T @ score_CS))
    score_CK = np.einsum("clqk,clq->ck", step_NK.reshape(*rest_CLQ.shape, -1), rest_CLQ)
    steps = step_NK.shape[1]
    noise = (fold_noise + float((score_CK**2).sum())) / (contrasts + steps)
    by_phase = float(sum_S @ fold.inverse_SS @ sum_S) - 2 * contrasts * noise
    by_steps = float(((step_NK.T @ values_CLQ.reshape(-1)) ** 2).sum()) - PRICE * steps * noise
    return bool(by_steps > by_phase)


def _stand(steps: Steps) -> bool:
    """Whether there are steps, and more than chance would show."""
    return bool(steps.steps) and steps.p_value is not None and steps.p_value <= SIGNIFICANT


def _depth(table: Table, outcome: Outcome, coordinate: Coordinate, trend: Floats) -> Depth:
    """A smooth trend in position, by Hotelling's T² on the covariance over clusters.

    F = (C − K) / (K (C − 1)) · bᵀ V⁻¹ b        b = trendᵀ y, V its sandwich over clusters
    """
    if not trend.shape[1]:
        return Depth(None, None)
    values_CLQ = centred(table.outcomes[outcome], table)
    effect_K = trend.T @ values_CLQ.reshape(-1)
    fit_CLQ = (trend @ effect_K).reshape(values_CLQ.shape)
    position_CLQ = table.position(coordinate)
    ends = (np.argmax(position_CLQ, axis=1), np.argmin(position_CLQ, axis=1))
    high_CQ, low_CQ = (np.take_along_axis(fit_CLQ, end[:, None], axis=1)[:, 0] for end in ends)
    change = float((high_CQ - low_CQ)[table.asked_CQ].mean())
    score_CK = np.einsum(
        "clqk,clq->ck", trend.reshape(*values_CLQ.shape, -1), values_CLQ - fit_CLQ
    )  # what each cluster adds to the error of the effects
    clusters, degree = score_CK.shape
    if clusters <= degree:
        return Depth(change, None)
    covariance_KK = score_CK.T @ score_CK * clusters / (clusters - 1)
    size = float(effect_K @ np.linalg.pinv(covariance_KK, hermitian=True) @ effect_K)
    scale = (clusters - degree) / (degree * (clusters - 1))
    return Depth(change, float(stats.f.sf(size * scale, degree, clusters - degree)))
