"""How a head's contribution falls over phases, from the same trials with and without it; numpy only.

Suffixes as in `statistics.table`; U units, P phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from ..errors import UsageError
from ..statistics.fold import Fold, fold_table, mean_rate, phase_effects, phase_rates, within_blocks
from ..statistics.intervals import CONFIDENCE, Rates, clustered_t, t_quantile
from ..statistics.permutation import permutation_p, quadratic_form
from ..statistics.phase_effect import phase_sd
from ..statistics.table import Coordinate, Floats, Outcome, Table
from ..statistics.verdict import holm
from .result import Contrast, Interval, Loss

POWER = 0.8


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """Which position is folded, and its modulus: the phases of an explanation."""

    stride: int
    coordinate: Coordinate = "source"

    def rates(self, table: Table, outcome: Outcome = "accuracy") -> tuple[npt.NDArray[np.int64], Rates]:
        """The phases that a table visits, and the outcome's mean at each."""
        return phase_rates(table, outcome, self.coordinate, self.stride)

    def fold(self, table: Table) -> Fold:
        """The table folded without a trend in position."""
        return fold_table(table, self.coordinate, self.stride)


def lost(base: Table, without: Table, outcome: Outcome) -> Table:
    """The paired difference, trial by trial: the outcome with everything less the outcome without a unit.

    Raises:
        UsageError: if the two tables are not of the same trials.
    """
    if base.source_CLQ.shape != without.source_CLQ.shape or not np.array_equal(
        base.source_CLQ, without.source_CLQ
    ):
        raise UsageError(
            f"{without.condition} and {base.condition} did not answer the same trials; explain again"
        )
    difference = {outcome: (base.outcomes[outcome] - without.outcomes[outcome]) * base.asked}
    return Table(
        without.condition, base.source_CLQ, base.query_CLQ, base.asked_CQ, difference, base.dropped_blocks
    )


def specialise(
    base: Table,
    without: Sequence[Table],
    outcome: Outcome,
    axis: PhaseAxis,
    *,
    rng: np.random.Generator,
    draws: int = 2000,
) -> list[Loss]:
    """How unevenly the contribution of each unit falls over phases.

        index = τ / (mean loss · √(P − 1))

    τ is the SD over phases of the loss within blocks, sampling noise removed (`phase_sd`). 0: the same at all phases;
    1: everything at a single phase. It may exceed 1 where some phases gain. The null permutes the layouts of whole
    contexts: what an index would be if phases were mere labels.

    Intervals hold for all units together (Bonferroni over units), p-values are corrected over units by Holm.

    Args:
        base: the untouched model.
        without: one table per unit, of the same trials.
        outcome: what is lost.
        axis: the phases.
        rng: of the permutations.
        draws: how many.
    """
    tables = [lost(base, table, outcome) for table in without]
    confidence = 1 - (1 - CONFIDENCE) / max(len(tables), 1)
    plain = axis.fold(base)
    found = [_loss(table, outcome, axis, plain, confidence, rng, draws) for table in tables]
    if not found:
        return []
    mean_p_U = holm(np.array([loss.mean_p for loss in found])).tolist()
    p_U = holm(np.array([loss.p for loss in found])).tolist()
    return [
        loss.model_copy(update={"mean_p_holm": mean_p, "p_holm": p})
        for loss, mean_p, p in zip(found, mean_p_U, p_U, strict=True)
    ]


def _loss(
    table: Table,
    outcome: Outcome,
    axis: PhaseAxis,
    plain: Fold,
    confidence: float,
    rng: np.random.Generator,
    draws: int,
) -> Loss:
    whole = mean_rate(table, outcome)
    _, at_phase = axis.rates(table, outcome)
    effects = phase_effects(table, outcome, plain)
    spread, mean = phase_sd(effects), float(whole.rate_R[0])
    scale = mean * np.sqrt(len(effects.rate_R) - 1)
    values_CLQ = within_blocks(table.outcomes[outcome], table, plain.trend_NK)
    sum_DS = plain.permuted(values_CLQ, rng, draws)
    p = permutation_p(quadratic_form(sum_DS, plain.inverse_SS))
    index = null_95 = None
    if _p_mean(whole) < 1 - CONFIDENCE and mean > 0 and spread.value is not None:
        index = spread.value / scale
        null_95 = float(np.quantile((sum_DS[1:] @ plain.inverse_SS).std(axis=1), 0.95) / scale)
    low_P, high_P = _interval(at_phase, confidence)
    low_1, high_1 = _interval(whole, confidence)
    return Loss(
        unit=table.condition,
        outcome=outcome,
        mean=Interval(value=mean, low=float(low_1[0]), high=float(high_1[0])),
        mean_p=_p_mean(whole),
        mean_p_holm=1.0,
        phase=at_phase.rate_R,
        low=low_P,
        high=high_P,
        index=index,
        phase_sd=Interval.of(spread),
        p=p,
        p_holm=1.0,
        null_95=null_95,
    )


def _interval(found: Rates, confidence: float) -> tuple[Floats, Floats]:
    if len(found.deviation_CR) < 2:
        return np.full_like(found.rate_R, -np.inf), np.full_like(found.rate_R, np.inf)
    return clustered_t(found, confidence)


def _p_mean(whole: Rates) -> float:
    """That the mean over contexts is 0, by Student's t."""
    clusters, se = len(whole.deviation_CR), float(whole.se[0])
    if clusters < 2 or se == 0:
        return 1.0 if whole.rate_R[0] == 0 or clusters < 2 else 0.0
    return float(2 * stats.t.sf(abs(float(whole.rate_R[0])) / se, clusters - 1))


def phases_mask(phases: Sequence[int], stride: int) -> npt.NDArray[np.bool_]:
    """Which of all phases are among the given ones, [P]."""
    chosen_P = np.zeros(stride, dtype=bool)
    chosen_P[list(phases)] = True
    return chosen_P


def weighted(at_phase: Rates, weight_P: Floats, confidence: float = CONFIDENCE) -> tuple[Rates, Interval]:
    """A weighted sum of the rates at each phase, with its interval over contexts."""
    one = Rates(
        np.array([at_phase.rate_R @ weight_P]),
        at_phase.trials_R.sum(keepdims=True),
        at_phase.deviation_CR @ weight_P[:, None],
    )
    value = float(one.rate_R[0])
    if len(one.deviation_CR) < 2:
        return one, Interval(value=value)
    low, high = clustered_t(one, confidence)
    return one, Interval(value=value, low=float(low[0]), high=float(high[0]))


def contrast(table: Table, phases: Sequence[int], axis: PhaseAxis) -> Contrast | None:
    """Compare the accuracy, or what of it is lost, at some phases with that at the others, within contexts.

    Returns:
        None where all phases, or none, are chosen.
    """
    phase_P, at_phase = axis.rates(table)
    mine = phases_mask(phases, axis.stride)[phase_P]
    if mine.all() or not mine.any():
        return None
    one, estimate = weighted(at_phase, np.where(mine, 1 / mine.sum(), -1 / (~mine).sum()))
    clusters, smallest = len(one.deviation_CR), None
    if clusters > 1:
        power = float(stats.t.ppf(POWER, clusters - 1))
        smallest = float(one.se[0]) * (t_quantile(clusters - 1) + power)
    return Contrast(estimate=estimate, phases=tuple(sorted(phases)), smallest=smallest)
