"""Best and worst phases that are picked on one half of the clusters and measured on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .intervals import CONFIDENCE, Estimate, Rates, wilson
from .table import Floats, Ints

HALVINGS = 32
"""Random halvings of the clusters that an estimate averages over."""
RESAMPLES = 400
"""Draws of signs behind an interval."""
Picks = tuple[tuple[int, Callable[..., Any]], ...]
WIDEST: Picks = ((1, np.argmax), (-1, np.argmin))
"""A gap: the best phase less the worst."""
LOWEST: Picks = ((1, np.argmin),)
"""The worst phase or residue alone."""


@dataclass(frozen=True, slots=True)
class Halves:
    """A split-half estimate and where its picks fell.

    Attributes:
        estimate: average over halvings and both directions, with its interval.
        weight_S: average weight of each phase in it: positive where picked as best (or as the residue that
            is measured), negative where picked as worst.
    """

    estimate: Estimate
    weight_S: Floats

    def picked(self, phase_S: Ints) -> dict[str, float]:
        """The weights of the phases that were picked, by their names."""
        weights = zip(phase_S.tolist(), self.weight_S.tolist(), strict=True)
        return {str(phase): round(weight, 6) for phase, weight in weights if weight}


def split_half(curve: Rates, picks: Picks, rng: np.random.Generator) -> Halves:
    """Estimate the largest gap, or the lowest rate, without rewarding noise for being extreme.

    A maximum looks larger than it is when the same noise picks and measures it. Here one half of the
    clusters picks and the other measures, both ways, averaged over random halvings.

    The interval of the true curve's extreme inverts a test. Suppose that the curve has the estimated shape at
    some size. Subtract it from each cluster's own curve, flip the sign of the rest at random, whole clusters at
    a time, add the curve again, halve and measure as before. This shows how estimates scatter, and how far they
    fall short where halves pick another phase than the extreme. A cluster with a rare failure moves the curve
    and the pick of its half at once; sign flips keep that, and normal redraws do not (their intervals cover
    flat curves at the ceiling in 99 %).

    A curve cannot be flatter than flat. An estimate below that of a flat curve is therefore not evidence
    against a small effect, and all of the 5 % lies on the other side (`_reach`); for a clear effect 2.5 % lies
    on either side. Central 95 % would cover flat curves in 97.5 %.

    The shortfall raises the upper end in full, and the lower end by the share of the shape that is not noise,
    because a noisy shape misstates the shortfall. This rule is the cautious choice; it is not derived.

    Args:
        curve: effects or rates per phase.
        picks: `WIDEST` or `LOWEST`.
        rng: of halvings and resamples.

    Returns:
        the estimate in the outcome's units; without value from fewer than four clusters.
    """
    clusters, phases = curve.deviation_CR.shape
    if clusters < 4 or phases < 2:
        return Halves(Estimate(None), np.zeros(phases))
    first = clusters // 2
    in_first_KC = rng.permuted(np.broadcast_to(np.arange(clusters) < first, (HALVINGS, clusters)), axis=1)
    halves = in_first_KC / first, ~in_first_KC / (clusters - first)
    own_CS = curve.deviation_CR * np.sqrt(clusters * (clusters - 1))
    one_1KS, other_1KS = ((curve.rate_R + half_KC @ own_CS)[None] for half_KC in halves)
    value_1, chosen = _halved(one_1KS, other_1KS, picks)
    weight_S = np.zeros(phases)
    for sign, index_BK in chosen:
        weight_S += sign * np.bincount(index_BK.ravel(), minlength=phases) / (2 * HALVINGS)
    low, high = _interval(float(value_1[0]), curve, own_CS, halves, picks, rng)
    return Halves(Estimate(float(value_1[0]), low, high), weight_S)


def _halved(one_BKS: Floats, other_BKS: Floats, picks: Picks) -> tuple[Floats, list[tuple[int, Ints]]]:
    """Average over halvings of what either half measures at the phases that the other picks.

    Returns:
        the average for each draw, and each sign with the phases that were picked, [B, K].
    """
    value_B, chosen = np.zeros(len(one_BKS)), []
    for sign, choose in picks:
        for picking_BKS, measuring_BKS in ((one_BKS, other_BKS), (other_BKS, one_BKS)):
            index_BK = choose(picking_BKS, axis=-1)
            measured_BK = np.take_along_axis(measuring_BKS, index_BK[..., None], axis=-1)[..., 0]
            value_B += sign * measured_BK.mean(axis=-1) / 2
            chosen.append((sign, index_BK))
    return value_B, chosen


def _interval(
    value: float,
    curve: Rates,
    own_CS: Floats,
    halves: tuple[Floats, Floats],
    picks: Picks,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Ends of the extremes, of curves of that shape, that the estimate is compatible with.

    Sizes are counted from a flat curve at the mean rate, so that a larger one is a larger gap or a lower
    minimum.
    """
    if not curve.deviation_CR.any():
        unseen = 1 - float(wilson(np.ones(1), curve.trials_R.min(keepdims=True))[0][0])
        return value - unseen, value + unseen
    clusters, mean = len(own_CS), float(curve.rate_R.mean())
    effect_S = curve.rate_R - mean
    seen = float(np.sqrt(effect_S @ effect_S))
    shape_S = effect_S / seen if seen > 0 else np.eye(len(effect_S))[0] - 1 / len(effect_S)
    extreme = sum(sign * float(shape_S[choose(shape_S)]) for sign, choose in picks)
    level, side = mean * sum(sign for sign, _ in picks), float(np.sign(extreme))
    noise = float(np.sqrt(((own_CS - own_CS.mean(axis=1, keepdims=True)) ** 2).sum())) / clusters
    real = max(1 - (noise / seen) ** 2, 0.0) if seen > 0 else 0.0
    size_G = np.linspace(0, 1, 10) ** 2 * (seen + 4 * noise)
    truth_G = size_G * abs(extreme)
    sign_BC = rng.choice((-1.0, 1.0), (RESAMPLES, clusters))
    weights_BKC = [sign_BC[:, None, :] * half_KC[: HALVINGS // 2] for half_KC in halves]
    # Half the clusters' mean curve under random signs, and the same of a curve that is 1 in every cluster.
    scatter = [
        (weight_BKC @ own_CS + mean, weight_BKC.sum(axis=-1, keepdims=True)) for weight_BKC in weights_BKC
    ]
    bound_2G, flat = np.empty((2, len(size_G))), None
    for g, size in enumerate(size_G):
        drawn_BKS = [(size + net_BK1 * (seen - size)) * shape_S for _, net_BK1 in scatter]
        for one_BKS, (own_BKS, _) in zip(drawn_BKS, scatter, strict=True):
            one_BKS += own_BKS
        drawn_B = side * (_halved(drawn_BKS[0], drawn_BKS[1], picks)[0] - level)
        sd, usual = max(float(drawn_B.std()), 1e-12), float(drawn_B.mean())
        flat = usual if flat is None else flat
        below, above = _reach((drawn_B - usual) / sd, (usual - flat) / sd)
        effect, short = side * (value - level), truth_G[g] - usual
        bound_2G[:, g] = effect + real * short - above * sd, effect + short + below * sd
    ends = sorted(level + side * _meeting(bound_G, truth_G) for bound_G in bound_2G)
    return ends[0], ends[1]


def _reach(distance_B: Floats, ahead: float) -> tuple[float, float]:
    """How far below and above the usual an estimate is accepted, where effects cannot be negative.

    Distances z, in standard deviations from the usual, are ranked by the likelihood ratio against the best
    effect that is possible, which for estimates below those of a flat curve (z < −ahead) is none:

        R = z² − min(z + ahead, 0)²        accepted is R up to its 95 % quantile

    Args:
        distance_B: of draws at one size of the effect.
        ahead: distance from the usual estimate of a flat curve.

    Source: Feldman and Cousins 1998, Physical Review D 57, 3873–3889.
    """
    rank_B = distance_B**2 - np.minimum(distance_B + ahead, 0) ** 2
    most = float(np.quantile(rank_B, CONFIDENCE))
    above = float(np.sqrt(most))
    return above if above <= ahead else (most + ahead**2) / max(2 * ahead, 1e-9), above


def _meeting(bound_G: Floats, truth_G: Floats) -> float:
    """Where a bound, a function of the true extreme, first meets it; its first value if that is beyond."""
    ahead_G = bound_G - truth_G
    behind = np.flatnonzero(ahead_G <= 0)
    if len(behind) == 0 or behind[0] == 0:
        return float(bound_G[0 if len(behind) else -1])
    g = behind[0]
    share = ahead_G[g - 1] / (ahead_G[g - 1] - ahead_G[g])
    return float(truth_G[g - 1] + share * (truth_G[g] - truth_G[g - 1]))
