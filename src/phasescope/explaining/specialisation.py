"""How a head's contribution falls over phases, from the same trials with and without it; numpy only.

Suffixes as in `statistics.table`; U units, P phases.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    *,
    stride: int,
    coordinate: Coordinate = "source",
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
        stride: modulus of the phases.
        coordinate: the position that is folded.
        rng: of the permutations.
        draws: how many.
    """
    tables = [lost(base, table, outcome) for table in without]
    confidence = 1 - (1 - CONFIDENCE) / max(len(tables), 1)
    plain = fold_table(base, coordinate, stride)
    found = [_loss(table, outcome, plain, coordinate, confidence, rng, draws) for table in tables]
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
    plain: Fold,
    coordinate: Coordinate,
    confidence: float,
    rng: np.random.Generator,
    draws: int,
) -> Loss:
    whole = mean_rate(table, outcome)
    _, at_phase = phase_rates(table, outcome, coordinate, plain.modulus)
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


def contrast(
    table: Table,
    outcome: Outcome,
    chosen_P: npt.NDArray[np.bool_],
    *,
    stride: int,
    coordinate: Coordinate = "source",
    confidence: float = CONFIDENCE,
) -> Contrast | None:
    """Compare the chosen phases with the others, within contexts.

    Returns:
        None where all phases, or none, are chosen.
    """
    phase_P, at_phase = phase_rates(table, outcome, coordinate, stride)
    mine = chosen_P[phase_P]
    if mine.all() or not mine.any():
        return None
    weight_P = np.where(mine, 1 / mine.sum(), -1 / (~mine).sum())
    one = Rates(
        np.array([at_phase.rate_R @ weight_P]),
        np.array([float(at_phase.trials_R.sum())]),
        at_phase.deviation_CR @ weight_P[:, None],
    )
    clusters = len(one.deviation_CR)
    value, phases = float(one.rate_R[0]), tuple(np.flatnonzero(chosen_P).tolist())
    if clusters < 2:
        return Contrast(estimate=Interval(value=value), phases=phases, smallest=None)
    low, high = clustered_t(one, confidence)
    power = float(stats.t.ppf(POWER, clusters - 1))
    smallest = float(one.se[0]) * (t_quantile(clusters - 1, confidence) + power)
    estimate = Interval(value=value, low=float(low[0]), high=float(high[0]))
    return Contrast(estimate=estimate, phases=phases, smallest=smallest)
