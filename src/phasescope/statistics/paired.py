"""Paired tests of phases over blocks: Cochran's Q for right and wrong, Friedman's test for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from .fold import Fold, centred, inverse
from .permutation import permutation_p, permuted_sums, quadratic_form
from .table import Outcome, Table


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Cochran's Q or Friedman's statistic.

    Attributes:
        name: which of the two.
        statistic: chi-squared with `df` degrees of freedom if blocks are independent and there is no effect.
        df: phases minus one.
        p_chi2: its p by that distribution: for independent blocks only.
        p_value: its p by permuting the layouts of whole clusters: for any blocks.
    """

    name: str
    statistic: float
    df: int
    p_chi2: float
    p_value: float


def paired_test(
    table: Table, outcome: Outcome, plain: Fold, rng: np.random.Generator, draws: int
) -> PairedTest:
    """Test whether the phases differ within blocks.

        Q = Sᵀ (Σ_b s_b² X_bᵀ X_b)⁺ S        S = Σ_b X_bᵀ y_b

    X_b are the phase indicators of a block less their mean, s_b² its variance over layouts (divided by
    L − 1). With each phase once per block this is Cochran's Q for scores of 0 and 1, and Friedman's
    statistic with its correction for ties for ranks; with several layouts of one phase it is their
    Cochran–Mantel–Haenszel form. Logits differ in spread from block to block, so a continuous outcome is
    ranked within its block.

    The chi-squared p takes blocks as independent, which questions about one context are not. The p-value
    that counts comes from permuting layouts within clusters.

    Args:
        table: the trials.
        outcome: which outcome.
        plain: the fold without trend.
        rng: of the permutations.
        draws: how many.

    Source: Cochran 1950, Biometrika 37, 256–266; Friedman 1937, Journal of the American Statistical
        Association 32, 675–701.
    """
    values_CLQ = table.outcomes[outcome]
    binary = bool(np.isin(values_CLQ, (0.0, 1.0)).all())
    if not binary:
        values_CLQ = stats.rankdata(values_CLQ, axis=1)
    values_CLQ = centred(values_CLQ, table)
    spread_CLQ = np.broadcast_to((values_CLQ**2).sum(axis=1, keepdims=True), values_CLQ.shape) / (
        table.n_layouts - 1
    )
    weighted_NS = plain.column_NS * spread_CLQ.reshape(-1, 1)
    inverse_SS = inverse(plain.column_NS.T @ weighted_NS)
    statistic_D = quadratic_form(permuted_sums(values_CLQ, plain.column_NS, rng, draws), inverse_SS)
    df = len(plain.phase_S) - 1
    return PairedTest(
        name="Cochran's Q" if binary else "Friedman's test",
        statistic=float(statistic_D[0]),
        df=df,
        p_chi2=float(stats.chi2.sf(statistic_D[0], df)),
        p_value=permutation_p(statistic_D),
    )
