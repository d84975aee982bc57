"""Tests by permutation of layouts within clusters, whose sums `designs` takes."""

from __future__ import annotations

import numpy as np
from scipy import stats

from .fold import centred, fold_table, inverse
from .table import Coordinate, Floats, Outcome, Table


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
    variance_CQ = (values_CLQ**2).sum(axis=1) / (table.n_layouts - 1)
    inverse_SS = inverse(design.groups.gram(variance_CQ))
    statistic_D = quadratic_form(design.permuted(values_CLQ, rng, draws), inverse_SS)
    statistic, df = float(statistic_D[0]), len(design.phase_S) - 1
    test = "Cochran's Q" if binary else "Friedman's test"
    p_chi2 = float(stats.chi2.sf(statistic, df))
    return permutation_p(statistic_D), {"test": test, "statistic": statistic, "df": df, "p_chi2": p_chi2}
