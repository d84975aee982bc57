"""Permutation of layouts within clusters: one draw moves a whole context, all its questions at once.

Questions that share a context share its noise in each layout. Permuting phases within each block as if
they were independent has size 0.24 at nominal 0.05 for 64 questions a context; permuting the layouts of
a context jointly, while the positions stay, keeps the shared noise together.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from .fold import centred, fold_table, inverse
from .table import Coordinate, Floats, Outcome, Table

CHUNK = 1_500_000
"""Permuted outcomes held at a time."""


def permuted_sums(values_CLQ: Floats, column_NK: Floats, rng: np.random.Generator, draws: int) -> Floats:
    """Sums of permuted outcomes in each column of a design.

        sum_dk = Σ_clq  y[c, π_dc(l), q] · column[clq, k]        π_dc a permutation of the layouts of c

    A position keeps its column, so a layout may mean another residue for each question. Because the columns
    are orthogonal to block means and trend, permuted outcomes need no second detrending (Freedman–Lane).

    Args:
        values_CLQ: outcomes without block means and trend, 0 where no question was asked.
        column_NK: design over N = C·L·Q trials in that order.
        rng: of the permutations.
        draws: how many.

    Returns:
        array of shape [1 + draws, K]; row 0 is the observed one.

    Source: Freedman and Lane 1983, Journal of Business and Economic Statistics 1, 292–298.
    """
    clusters, layouts, questions = values_CLQ.shape
    value_MQ = values_CLQ.reshape(clusters * layouts, questions)
    first_C1 = layouts * np.arange(clusters)[:, None]
    size = max(1, CHUNK // values_CLQ.size)
    sums = [value_MQ.reshape(1, -1) @ column_NK]
    for start in range(0, draws, size):
        count = min(size, draws - start)
        order_DCL = np.broadcast_to(np.arange(layouts), (count, clusters, layouts))
        row_DM = (rng.permuted(order_DCL, axis=2) + first_C1).reshape(count, -1)
        sums.append(value_MQ[row_DM].reshape(count, -1) @ column_NK)
    return np.concatenate(sums)


def permutation_p(statistic_D: Floats) -> float:
    """Share of draws with a statistic as large as the observed one in row 0, which counts itself.

    p = #{d ≥ 0 : T_d ≥ T_0} / (1 + draws)
    """
    return float(np.mean(statistic_D >= statistic_D[0] - 1e-9 * abs(statistic_D[0])))


def quadratic_form(sum_DS: Floats, inverse_SS: Floats) -> Floats:
    """Phase-fold sum of squares of each draw: Sᵀ (Gᵀ G)⁺ S, what the phases explain."""
    squares_D: Floats = np.einsum("ds,ds->d", sum_DS @ inverse_SS, sum_DS)
    return squares_D


def paired_test(
    table: Table,
    outcome: Outcome,
    coordinate: Coordinate,
    modulus: int,
    rng: np.random.Generator,
    draws: int,
) -> tuple[float, dict[str, str | float]]:
    """Test whether the phases differ within blocks: Cochran's Q for right and wrong, Friedman's test for the rest.

        Q = Sᵀ (Σ_b s_b² X_bᵀ X_b)⁺ S        S = Σ_b X_bᵀ y_b

    X_b are the phase indicators of a block less their mean, s_b² its variance over layouts (divided by
    L − 1). With each phase once per block this is Cochran's Q for scores of 0 and 1, and Friedman's
    statistic with its correction for ties for ranks; with several layouts of one phase it is their
    Cochran–Mantel–Haenszel form. Logits differ in spread from block to block, so a continuous outcome is
    ranked within its block.

    Args:
        table: the trials.
        outcome: which outcome.
        coordinate: which position is folded.
        modulus: of the fold.
        rng: of the permutations.
        draws: how many.

    Returns:
        p by permuting the layouts of whole clusters, for any blocks; and the `test` by name, its `statistic`, degrees
        of freedom `df` and chi-squared p `p_chi2`, which holds for independent blocks only: questions about one
        context are not.

    Source: Cochran 1950, Biometrika 37, 256–266; Friedman 1937, Journal of the American Statistical
        Association 32, 675–701.
    """
    design, values_CLQ = fold_table(table, coordinate, modulus), table.outcomes[outcome]
    binary = bool(np.isin(values_CLQ, (0.0, 1.0)).all())
    values_CLQ = centred(values_CLQ if binary else stats.rankdata(values_CLQ, axis=1), table)
    variance_CLQ = np.broadcast_to((values_CLQ**2).sum(axis=1, keepdims=True), values_CLQ.shape) / (
        table.n_layouts - 1
    )
    inverse_SS = inverse(design.column_NS.T @ (design.column_NS * variance_CLQ.reshape(-1, 1)))
    statistic_D = quadratic_form(permuted_sums(values_CLQ, design.column_NS, rng, draws), inverse_SS)
    statistic, df = float(statistic_D[0]), len(design.phase_S) - 1
    test = "Cochran's Q" if binary else "Friedman's test"
    p_chi2 = float(stats.chi2.sf(statistic, df))
    return permutation_p(statistic_D), {"test": test, "statistic": statistic, "df": df, "p_chi2": p_chi2}
