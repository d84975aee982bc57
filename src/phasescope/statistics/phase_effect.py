"""How much the phase matters: phase SD with its interval, and the smallest one that would have been seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from .intervals import SIGNIFICANT, Estimate, Rates, t_quantile
from .table import Floats

POWER = 0.8
"""With which the smallest detectable effect is found."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Moments of the sampling covariance V of the phase effects, estimated over clusters.

    Attributes:
        trace: tr V, what noise adds to the sum of squared effects.
        square: tr V², unbiased.
        along: variance in the direction of the effects, θᵀVθ / θᵀθ.
        clusters_df: C − 1.
    """

    trace: float
    square: float
    along: float
    clusters_df: int

    @property
    def dimensions(self) -> float:
        """Effective number of phase contrasts, (tr V)² / tr V²."""
        return self.trace**2 / self.square if self.square > 0 else 1.0


def noise_of(effects: Rates) -> Noise:
    """Moments of the covariance of phase effects, from the deviations of their clusters.

    tr V̂² is too large, with many phases by more than what it estimates, and most where few clusters carry
    the failures. Unbiased whatever the distribution over C ≥ 4 clusters is, with d_c their deviations,

        tr V² ≈ (C−1) ((C−1)(C−2) tr V̂² + (tr V̂)² − C (C−1) Σ_c |d_c|⁴) / (C (C−2) (C−3))

    The direction's variance is estimated without the part that noise adds to both numerator and
    denominator, and kept between its naive value and the largest eigenvalue.

    Source: Himeno and Yamada 2014, Journal of Multivariate Analysis 130, 27–44, for tr V².
    """
    deviation_CS, effect_S = effects.deviation_CR, effects.rate_R
    clusters, phases = deviation_CS.shape
    df = clusters - 1
    gram = deviation_CS @ deviation_CS.T if clusters < phases else deviation_CS.T @ deviation_CS
    trace = float(np.trace(gram))
    square = float((gram**2).sum())
    if trace < 1e-20:
        trace = _unseen(effects.trials_R)
        return Noise(trace, trace**2 / max(phases - 1, 1), 0.0, df)
    if clusters > 3:
        fourth = float(((deviation_CS**2).sum(axis=1) ** 2).sum())
        own = df * (clusters - 2) * square + trace**2 - clusters * df * fourth
        square = own * df / (clusters * (clusters - 2) * (clusters - 3))
    square = max(square, trace**2 / max(phases - 1, 1))
    size = float(effect_S @ effect_S)
    naive = float(((deviation_CS @ effect_S) ** 2).sum()) / size if size > 0 else 0.0
    along = naive
    if size > trace:
        largest = float(np.linalg.eigvalsh(gram)[-1])
        along = float(np.clip((naive * size - square) / (size - trace), naive, max(largest, naive)))
    return Noise(trace, square, along, df)


def _unseen(trials_S: Floats) -> float:
    """The trace of V where all trials came out alike: as if 2 of 4 more had not (Agresti–Coull)."""
    rare = 2 / (trials_S.sum() + 4)
    return float((rare * (1 - rare) / trials_S).sum() * (1 - 1 / len(trials_S)))


SHARES = 0.5
"""The largest SD that shares can have: half of them 0, half 1."""


def phase_sd(effects: Rates, most: float = math.inf) -> Estimate:
    """Standard deviation tau of the true accuracy over phases, without sampling, block and layout noise.

        tau² = (Σ_s θ_s² − tr V) / S

    θ are the phase effects within blocks and V their covariance by deleting one cluster at a time, so that
    tau² is unbiased whatever noise the questions of a context share. The interval inverts the test of
    t = S·tau² in which the sum of squares has its variance *at t* (as Wilson's interval does for a rate):

        (Σθ² − tr V − t)² ≤ 2 k₁² tr V² + 4 k₂² t · θᵀVθ / θᵀθ

    k₁ and k₂ are t quantiles on the degrees of freedom behind either variance. Both ends are clipped at 0,
    and the upper one is not taken below what an estimate of 0 would give.

    Why: a jackknife standard error of tau or tau² vanishes at tau = 0, and the non-central F interval
    assumes equal variances, which one bad phase near the ceiling does not have.

    Args:
        effects: of the phases, with their deviations.
        most: the largest value that there can be: `SHARES` for accuracy.

    Returns:
        tau in the outcome's units; without interval from one cluster.
    """
    phases = len(effects.rate_R)
    if len(effects.deviation_CR) < 2 or phases < 2:
        return Estimate(None)
    noise = noise_of(effects)
    excess = float(effects.rate_R @ effects.rate_R) - noise.trace
    flat_width = 2 * t_quantile(noise.clusters_df * noise.dimensions) ** 2 * noise.square
    slope = 2 * t_quantile(noise.clusters_df) ** 2 * noise.along

    def bound(start: float, side: int) -> float:
        centre = start + slope
        return centre + side * float(np.sqrt(max(centre**2 - start**2 + flat_width, 0.0)))

    low, high = bound(excess, -1), bound(max(excess, 0.0), 1)
    value, low, high = (float(np.sqrt(max(t, 0.0) / phases)) for t in (excess, low, high))
    return Estimate(value, low, high).within(0.0, most)


def noncentrality(d: float, e: float, level: float = SIGNIFICANT, reach: float = 1e4) -> float | None:
    """Non-centrality at which an F test on d and e degrees of freedom has 80 % power; None if it is beyond `reach`."""
    critical = stats.f.isf(level, d, e)
    if stats.ncf.sf(critical, d, e, reach) < POWER:
        return None
    return float(optimize.brentq(lambda shift: stats.ncf.sf(critical, d, e, shift) - POWER, 1e-6, reach))


def smallest_effect(effects: Rates, level: float = SIGNIFICANT) -> float | None:
    """Phase SD that the phase test would have found with 80 % power, from the noise that was measured.

    The sum of squares over tr V, times the effective number of contrasts d, is taken as F(d, ν·d), with
    non-centrality λ = d · S·tau² / tr V; the answer is the tau at which its power is 80 %.

    Args:
        effects: phase effects with their deviations.
        level: of the test.

    Returns:
        tau in the outcome's units; None from fewer than four clusters, which don't show their noise well
        enough.
    """
    if len(effects.deviation_CR) < 4 or len(effects.rate_R) < 2:
        return None
    return detectable(noise_of(effects), len(effects.rate_R), level)


def detectable(noise: Noise, phases: int, level: float = SIGNIFICANT) -> float | None:
    """Phase SD that the phase test finds with 80 % power, under that noise; see `smallest_effect`."""
    d = noise.dimensions
    shift = noncentrality(d, noise.clusters_df * d, level)
    return None if shift is None else float(np.sqrt(shift * noise.trace / d / phases))


def power_at(phase_sd: float, noise: Noise, phases: int) -> float:
    """Probability that the phase test finds an effect of that SD, under that noise; see `smallest_effect`."""
    d, df = noise.dimensions, noise.clusters_df * noise.dimensions
    shift = d * phases * phase_sd**2 / noise.trace
    return float(stats.ncf.sf(stats.f.isf(SIGNIFICANT, d, df), d, df, shift))
