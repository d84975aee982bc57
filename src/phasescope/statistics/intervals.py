"""Intervals for rates and means whose trials come in clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import stats

from .table import Floats

CONFIDENCE = 0.95
"""Confidence level of every reported interval."""
SIGNIFICANT = 0.05
"""Level of every test: a p below it is significant, corrected where several are compared."""
NO_VARIANCE = 1e-12
"""Design effect up to which the variance over clusters is rounding error: the clusters agree."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; the interval is missing where there are too few clusters for one."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def within(self, least: float, most: float) -> Self:
        """Cut to the range that the quantity can have."""
        cut = (None if x is None else min(max(x, least), most) for x in (self.value, self.low, self.high))
        return type(self)(*cut)


@dataclass(frozen=True, slots=True)
class Rates:
    """Mean outcome of several groups of trials (phases, residues), and how it varies over clusters.

    Suffixes: C cluster, R group.

    Attributes:
        rate_R: mean over all trials of a group.
        trials_R: trials in a group.
        deviation_CR: what each cluster adds to the error of the rate: rate ≈ truth + Σ_c deviation, and
            Σ_c deviation deviationᵀ estimates the covariance, as deleting one cluster at a time does.
    """

    rate_R: Floats
    trials_R: Floats
    deviation_CR: Floats

    def only(self, kept_R: npt.NDArray[np.bool_]) -> Rates:
        """Some of the groups."""
        return Rates(self.rate_R[kept_R], self.trials_R[kept_R], self.deviation_CR[:, kept_R])

    def contrast(self, weight_R: Floats) -> Rates:
        """A weighted sum of the groups, as one group."""
        trials = self.trials_R.sum(keepdims=True)
        return Rates((weight_R @ self.rate_R)[None], trials, (self.deviation_CR @ weight_R)[:, None])

    @property
    def se(self) -> Floats:
        """Standard error of each rate over clusters."""
        se_R: Floats = np.sqrt((self.deviation_CR**2).sum(axis=0))
        return se_R


def rates(sum_CR: Floats, trials_CR: Floats) -> Rates:
    """Rates of groups that all clusters have some share in, by the ratio estimator.

        rate = Σ_c sum_c / Σ_c trials_c
        deviation_c = √(C/(C−1)) · (sum_c − rate · trials_c) / Σ trials

    Args:
        sum_CR: outcome summed over a cluster's trials of a group.
        trials_CR: number of such trials.
    """
    clusters, trials_R = len(sum_CR), trials_CR.sum(axis=0)
    rate_R = sum_CR.sum(axis=0) / trials_R
    deviation_CR = (sum_CR - rate_R * trials_CR) / trials_R
    return Rates(rate_R, trials_R, deviation_CR * np.sqrt(clusters / max(clusters - 1, 1)))


def wilson(rate: Floats, trials: Floats, quantile: float | None = None) -> tuple[Floats, Floats]:
    """Wilson's score interval of a proportion, for independent trials.

        (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)

    Args:
        rate: observed proportion.
        trials: number of trials, need not be whole.
        quantile: z; by default the normal quantile of a 95 % interval.

    Source: Wilson 1927, Journal of the American Statistical Association 22, 209–212.
    """
    z = stats.norm.isf((1 - CONFIDENCE) / 2) if quantile is None else quantile
    shrink = 1 + z**2 / trials
    centre = (rate + z**2 / (2 * trials)) / shrink
    half = z * np.sqrt(rate * (1 - rate) / trials + z**2 / (4 * trials**2)) / shrink
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def clustered_wilson(groups: Rates) -> tuple[Floats, Floats]:
    """Wilson's interval at the effective sample size, for trials that come in clusters.

        n_eff = n / deff        deff = SE_cluster² / (p(1−p)/n)        z → t quantile on C − 1 df

    A group whose clusters all agree shows no variance of its own; it takes the design effect of all groups
    together, and where no group shows any, its trials count as independent.

    Source: Korn and Graubard 1998, Survey Methodology 24, 193–201, for the effective sample size.
    Differs: Wilson's interval in place of Clopper–Pearson's, and t for z in place of a factor on n_eff.
    """
    plain_R = groups.rate_R * (1 - groups.rate_R) / groups.trials_R
    shown_R = groups.se**2 > NO_VARIANCE * plain_R
    together = float((groups.se**2).sum() / plain_R.sum()) if shown_R.any() else 1.0
    effect_R = np.divide(groups.se**2, plain_R, out=np.full_like(plain_R, together), where=shown_R)
    return wilson(groups.rate_R, groups.trials_R / effect_R, t_quantile(len(groups.deviation_CR) - 1))


def clustered_t(groups: Rates, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Cluster t interval of a mean whose distribution over clusters may be skewed.

        mean − SE · g⁻¹(±t)        g(x) = x + a x² + a² x³/3 + a/2        a = skewness / (3 √C)

    t has C − 1 degrees of freedom. Log-probabilities near the ceiling have a long tail of failures; Student's
    interval is then too high and covers the mean of 100 independent questions in 91 % of all cases.

    Source: Hall 1992, Journal of the Royal Statistical Society B 54, 221–228.
    """
    clusters = len(groups.deviation_CR)
    centred_CR = groups.deviation_CR - groups.deviation_CR.mean(axis=0)
    second_R, third_R = (centred_CR**2).mean(axis=0), (centred_CR**3).mean(axis=0)
    lean_R = np.divide(third_R, second_R**1.5, out=np.zeros_like(third_R), where=second_R > 0)
    a_R = lean_R / (3 * np.sqrt(clusters))
    safe_R = np.where(np.abs(a_R) < 1e-6, 1e-6, a_R)

    def untransformed(x: float) -> Floats:
        inverse_R: Floats = (np.cbrt(1 + 3 * safe_R * (x - safe_R / 2)) - 1) / safe_R
        return inverse_R

    t = t_quantile(clusters - 1, confidence)
    return groups.rate_R - groups.se * untransformed(t), groups.rate_R - groups.se * untransformed(-t)


def t_quantile(df: float, confidence: float = CONFIDENCE) -> float:
    """Two-sided quantile of Student's t, by default of 95 %."""
    return float(stats.t.isf((1 - confidence) / 2, df))
