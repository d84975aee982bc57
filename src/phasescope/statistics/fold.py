"""Folding positions by a modulus: phase effects within blocks, free of a smooth trend in position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .designs import Groups, grouped, permuted_sums, trend_cross
from .intervals import Rates, rates
from .table import Coordinate, Floats, Ints, Outcome, Table

DEGREE = 3
"""Degree of the polynomial in position that models a depth trend."""


def centred(values_CLQX: Floats, table: Table) -> Floats:
    """Values minus their block's mean over layouts, 0 where no question was asked."""
    asked = table.asked.reshape(*table.asked.shape, *(1,) * (values_CLQX.ndim - 3))
    within_CLQX: Floats = (values_CLQX - values_CLQX.mean(axis=1, keepdims=True)) * asked
    return within_CLQX


def trend_basis(table: Table, coordinate: Coordinate, degree: int = DEGREE, *, own: bool = False) -> Floats:
    """Orthonormal columns that span a polynomial in position, seen within blocks.

    Args:
        table: the trials.
        coordinate: the position that the polynomial is of.
        degree: of the polynomial.
        own: a polynomial for every cluster in place of one for all.

    Returns:
        array of shape [C·L·Q, K]; K ≤ degree, fewer where the positions cannot distinguish the powers.
    """
    position_CLQ = table.position(coordinate).astype(np.float64)
    seen = position_CLQ[table.asked]
    scaled_CLQ = (position_CLQ - seen.mean()) / max(float(np.ptp(seen)) / 2, 1.0)
    power_CLQK = centred(np.repeat(scaled_CLQ[..., None], degree, axis=3).cumprod(axis=3), table)
    if own:
        power_CLQK = each_cluster(power_CLQK)
    power_NK = power_CLQK.reshape(-1, power_CLQK.shape[-1])
    left_NK, size_K, _ = np.linalg.svd(power_NK, full_matrices=False)
    return left_NK[:, size_K > 1e-6 * max(float(size_K.max(initial=0)), 1e-12)]


def each_cluster(column_CLQK: Floats) -> Floats:
    """Columns that are 0 outside of one cluster, for each cluster in turn; shape [C, L, Q, C·K]."""
    own_CLQCK = column_CLQK[:, :, :, None, :] * np.eye(len(column_CLQK))[:, None, None, :, None]
    return own_CLQCK.reshape(*column_CLQK.shape[:3], -1)


@dataclass(frozen=True, eq=False)
class Fold:
    """Phase indicators of a modulus, freed of block means and trend: the design G of every phase statistic.

    Its columns are never written out: each trial has the label of its phase, and sums over phases are
    corrected for what the trend takes from the indicators.

    Suffixes: N = C·L·Q trials, S visited phases, K columns of the trend.

    Attributes:
        modulus: what positions are folded by.
        phase_S: the phases that occur.
        trials_S: how many trials each has.
        groups: the trials of each phase.
        gram_SS: Gᵀ G.
        inverse_SS: its pseudo-inverse.
        trend_NK: the trend's own columns.
        cross_KS: what the trend has of each indicator, trendᵀ indicator.
        profiles: how many phase profiles it has: one for all, or one for every cluster.
    """

    modulus: int
    phase_S: Ints
    trials_S: Floats
    groups: Groups
    gram_SS: Floats
    inverse_SS: Floats
    trend_NK: Floats
    cross_KS: Floats
    profiles: int = 1

    @property
    def contrasts(self) -> int:
        """How many contrasts of phases the blocks determine, directly or through other phases."""
        return int(np.linalg.matrix_rank(self.inverse_SS, hermitian=True))

    @property
    def identified(self) -> bool:
        """Whether every phase can be compared with every other."""
        return self.contrasts == len(self.phase_S) - 1

    def sums(self, values_CLQ: Floats) -> Floats:
        """Gᵀ y of values without block means and trend; shape [S]."""
        return self.groups.sums(values_CLQ)

    def cluster_sums(self, values_CLQ: Floats) -> Floats:
        """G_cᵀ y_c of each cluster, of values without block means; shape [C, S]."""
        trend_CLQK = self.trend_NK.reshape(*values_CLQ.shape, self.trend_NK.shape[1])
        trend_CK = np.einsum("clqk,clq->ck", trend_CLQK, values_CLQ)
        sums: Floats = self.groups.cluster_sums(values_CLQ) - trend_CK @ self.cross_KS
        return sums

    def fitted(self, effect_S: Floats) -> Floats:
        """G θ, what phase effects say of every trial; shape [C, L, Q]."""
        label_CLQ = self.groups.label_CLQ
        effect_CLQ = np.append(effect_S, 0.0)[label_CLQ]
        effect_CLQ = (effect_CLQ - effect_CLQ.mean(axis=1, keepdims=True)) * (label_CLQ >= 0)
        fit: Floats = effect_CLQ - (self.trend_NK @ (self.cross_KS @ effect_S)).reshape(label_CLQ.shape)
        return fit

    def without_trend(self, sum_DS: Floats, trend_DK: Floats) -> Floats:
        """Sums of permuted values over the columns, from those over the indicators and over the trend."""
        left: Floats = sum_DS - trend_DK @ self.cross_KS
        return left

    def permuted(self, values_CLQ: Floats, rng: np.random.Generator, draws: int) -> Floats:
        """Gᵀ y of permuted values, as `permuted_sums` has it; shape [1 + draws, S]."""
        return self.without_trend(*permuted_sums(values_CLQ, [self.groups, self.trend_NK], rng, draws))

    def written(self) -> Floats:
        """The columns G written out, for small tables; shape [N, S]."""
        return np.stack([self.fitted(unit_S).reshape(-1) for unit_S in np.eye(len(self.phase_S))], axis=1)

    def fit(self, values_CLQ: Floats) -> tuple[Floats, Floats]:
        """Least-squares effects of the phases on values without block means and trend, and what they leave."""
        effect_S: Floats = self.inverse_SS @ self.sums(values_CLQ)
        return effect_S, values_CLQ - self.fitted(effect_S)


def fold_table(
    table: Table, coordinate: Coordinate, modulus: int, trend: Floats | None = None, *, own: bool = False
) -> Fold:
    """Fold a table by a modulus.

    Args:
        table: the trials.
        coordinate: which position is folded.
        modulus: the stride, 2 or more.
        trend: columns of `trend_basis`; by default none.
        own: every cluster has a phase profile of its own; its phases are numbered on from the last one's.
    """
    phase_CLQ = table.position(coordinate) % modulus
    if own:
        phase_CLQ = phase_CLQ + modulus * np.arange(table.n_clusters)[:, None, None]
    phase_S, trials_S, groups = grouped(phase_CLQ, table.asked)
    if trend is None:
        trend = np.empty((phase_CLQ.size, 0))
    cross_KS = trend_cross(trend, groups)
    gram_SS = groups.gram() - cross_KS.T @ cross_KS
    profiles = table.n_clusters if own else 1
    return Fold(modulus, phase_S, trials_S, groups, gram_SS, inverse(gram_SS), trend, cross_KS, profiles)


def inverse(gram_SS: Floats) -> Floats:
    """Pseudo-inverse of a Gram matrix of indicators; a contrast below a millionth of a trial is none."""
    size_S, axis_SS = np.linalg.eigh(gram_SS)
    kept_S = size_S > 1e-6
    result_SS: Floats = (axis_SS[:, kept_S] / size_S[kept_S]) @ axis_SS[:, kept_S].T
    return result_SS


def identified_fold(table: Table, coordinate: Coordinate, modulus: int) -> Fold:
    """Fold with the richest trend that leaves every phase contrast its own.

    Where all contexts put their sources at the same few positions, a phase slope and a depth trend are one
    and the same; the trend then gives way, from a cubic down to none.
    """
    plain = fold_table(table, coordinate, modulus)
    size_S = np.linalg.eigvalsh(plain.gram_SS)
    for degree in range(DEGREE, 0, -1):
        found = fold_table(table, coordinate, modulus, trend_basis(table, coordinate, degree))
        left_S = np.linalg.eigvalsh(found.gram_SS)
        if np.all(left_S[1:] >= 0.1 * size_S[1:]):
            return found
    return plain


def within_blocks(values_CLQ: Floats, table: Table, trend: Floats) -> Floats:
    """Outcomes minus their block mean and the trend fitted over all blocks; shape [C, L, Q]."""
    values_N = centred(values_CLQ, table).reshape(-1)
    return (values_N - trend @ (trend.T @ values_N)).reshape(values_CLQ.shape)


def phase_effects(table: Table, outcome: Outcome, design: Fold) -> Rates:
    """Effect of each phase on the outcome by least squares on block, trend and phase.

        θ = (Gᵀ G)⁺ Gᵀ y        deviation_c = √(C/(C−1)) (Gᵀ G)⁺ G_cᵀ (y_c − G_c θ)

    G holds the phase indicators without block means and trend. The effects sum to 0. With every phase
    equally often in every block they are the phase means minus the grand mean, and Σ deviation deviationᵀ
    is exactly their delete-one-cluster jackknife covariance; otherwise it is the cluster sandwich.

    Returns:
        `Rates` whose rate_R are the effects θ.

    Source: Liang and Zeger 1986, Biometrika 73, 13–22, for the sandwich.
    """
    clusters = table.n_clusters
    effect_S, left_CLQ = design.fit(within_blocks(table.outcomes[outcome], table, design.trend_NK))
    score_CS = design.cluster_sums(left_CLQ)
    deviation_CS = score_CS @ design.inverse_SS * np.sqrt(clusters / max(clusters - 1, 1))
    return Rates(effect_S, design.trials_S, deviation_CS)


def phase_rates(table: Table, outcome: Outcome, coordinate: Coordinate, modulus: int) -> tuple[Ints, Rates]:
    """Plain mean outcome of the trials at each phase (or residue) that occurs.

    Returns:
        the phases, and their rates.
    """
    phase_R, _, groups = grouped(table.position(coordinate) % modulus, table.asked)
    sum_CR, trials_CR = map(groups.cluster_sums, (table.outcomes[outcome], table.asked.astype(np.float64)))
    return phase_R, rates(sum_CR, trials_CR)


def mean_rate(table: Table, outcome: Outcome) -> Rates:
    """Mean outcome over all trials, as one group."""
    sum_C1 = table.outcomes[outcome].sum(axis=(1, 2))[:, None]
    return rates(sum_C1, table.asked.sum(axis=(1, 2)).astype(np.float64)[:, None])
