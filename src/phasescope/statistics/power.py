"""What a run will be able to detect, from its design and a guess at its noise.

Shape suffixes: C cluster, L layout, Q question, S phase, N = C·L·Q trials; K nodes of a quadrature.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.special import expit

from ..errors import UsageError
from ..records import Observation, Trial
from .fold import Fold
from .phase_effect import Noise
from .table import Table, tabulate

NODES = 16
"""Quadrature nodes per random effect; more change nothing in the fourth digit."""


@dataclass(frozen=True, kw_only=True)
class Guess:
    """Assumptions about a model that has not been measured; random effects in logits.

        p = σ(m + block + cluster + layout)        m such that the mean of p is the accuracy

    The SDs are those under which every statistic is calibrated. An accuracy of one half is the most cautious.

    Args:
        accuracy: mean accuracy.
        block_sd: SD of a question's own difficulty.
        cluster_sd: SD of a context's difficulty.
        layout_sd: SD of the noise that all questions of one context share in one layout.

    Raises:
        UsageError: if the accuracy is not strictly between 0 and 1, or an SD negative.
    """

    accuracy: float = 0.5
    block_sd: float = 0.7
    cluster_sd: float = 0.4
    layout_sd: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.accuracy < 1:
            raise UsageError(f"accuracy {self.accuracy}: guess a share between 0 and 1, neither included")
        for name in ("block_sd", "cluster_sd", "layout_sd"):
            if not 0 <= getattr(self, name) <= 10:
                raise UsageError(f"{name} {getattr(self, name)}: give logits from 0 to 10")

    def variances(self) -> tuple[float, float]:
        """Variance of an answer within its block: its own, and what a layout's questions share.

        shared = E_c Var_λ E_b p        own = E p(1 − p) + E_bc Var_λ p − shared
        """
        node_K, weight_K = np.polynomial.hermite_e.hermegauss(NODES)
        weight_K = weight_K / weight_K.sum()
        effect_KKK = (
            self.block_sd * node_K[:, None, None]
            + self.cluster_sd * node_K[:, None]
            + self.layout_sd * node_K
        )

        def mean(values_KKK: np.ndarray, *axes: int) -> np.ndarray:
            for axis in sorted(axes, reverse=True):
                values_KKK = np.tensordot(values_KKK, weight_K, axes=(axis, 0))
            return values_KKK

        middle = optimize.brentq(
            lambda m: float(mean(expit(m + effect_KKK), 0, 1, 2)) - self.accuracy, -60.0, 60.0
        )
        p_bcl = expit(middle + effect_KKK)
        p_cl = mean(p_bcl, 0)
        shared = float(mean(mean(p_cl**2, 1) - mean(p_cl, 1) ** 2, 0))
        moved = float(mean(mean(p_bcl**2, 2) - mean(p_bcl, 2) ** 2, 0, 1))
        return float(mean(p_bcl * (1 - p_bcl), 0, 1, 2)) + moved - shared, shared


def planned_table(trials: Iterable[Trial]) -> Table:
    """The table that the trials' answers will make, with all outcomes 0.

    Raises:
        UsageError: if no block is asked in two layouts.
    """
    rows = [
        Observation.model_construct(
            condition="plan",
            trial="",
            cluster=trial.cluster,
            block=trial.block,
            layout=trial.layout,
            source_position=trial.source_position,
            query_position=len(trial.prompt_ids) - 1,
            prompt_tokens=len(trial.prompt_ids),
            score=0.0,
        )
        for trial in trials
    ]
    return tabulate(rows)


def planned_noise(table: Table, design: Fold, guess: Guess) -> Noise:
    """Moments of the covariance of the phase effects that such a run will have.

        V = M (own · Σ_clq g gᵀ + shared · Σ_cl (Σ_q g) (Σ_q g)ᵀ) M        M = (Gᵀ G)⁺

    g are the rows of the fold's design G, which has no block means: what a question or a context adds to
    all its answers drops out.

    Args:
        table: of the planned trials; only its positions matter.
        design: the fold at which phases will be compared.
        guess: accuracy and noise.
    """
    own, shared = guess.variances()
    column_NS, inverse_SS = design.written(), design.inverse_SS
    clusters, layouts, _ = table.source_CLQ.shape
    layout_MS = column_NS.reshape(clusters * layouts, -1, column_NS.shape[1]).sum(axis=1)
    middle_SS = own * column_NS.T @ column_NS + shared * layout_MS.T @ layout_MS
    covariance_SS = inverse_SS @ middle_SS @ inverse_SS
    trace, square = float(np.trace(covariance_SS)), float((covariance_SS**2).sum())
    return Noise(trace, square, trace / max(len(inverse_SS) - 1, 1), clusters - 1)
