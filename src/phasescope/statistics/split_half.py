"""Best and worst phases that are picked on one half of the clusters and measured on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .intervals import Estimate, Rates, t_quantile, wilson
from .table import Floats, Ints

HALVINGS = 32
"""Random halvings of the clusters that an estimate averages over."""
RESAMPLES = 400
"""Draws behind each error distribution of an interval."""
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


def split_half(curve: Rates, picks: Picks, rng: np.random.Generator) -> Halves:
    """Estimate the largest gap, or the lowest rate, without rewarding noise for being extreme.

    A maximum looks larger than it is when the same noise picks and measures it. Here one half of the
    clusters picks and the other measures, both ways, averaged over random halvings.

    The interval is about the extreme of the true curve and inverts a parametric bootstrap. Assume that the
    curve has the estimated shape at some size; redraw it with the covariance of its clusters, halve it in
    the same ways, and see by how much the estimate misses the extreme: the size is in the interval if the
    estimate is within a t quantile of standard deviations from what is usual at that size. So it allows
    for halves that pick another phase where several are nearly as good.

    Why not percentiles: a flat curve can be taken only for more than it is, and central percentiles cover it
    in 97.5 % of all cases. The error of a flat curve leans to that side, so that the standard deviation, as
    in the interval of the phase SD, leaves about 5 % there, and 2.5 % on each side of a clear effect.

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
    own_CS = curve.deviation_CR * np.sqrt((clusters - 1) / clusters)
    first = clusters // 2
    half_KC = rng.permuted(np.broadcast_to(np.arange(clusters) < first, (HALVINGS, clusters)), axis=1)
    shift_KS = half_KC.astype(np.float64) @ own_CS * clusters
    shifts = shift_KS / first, -shift_KS / (clusters - first)
    value_1, chosen = _halved(curve.rate_R[None], shifts, picks)
    weight_S = np.zeros(phases)
    for sign, index_BK in chosen:
        weight_S += sign * np.bincount(index_BK.ravel(), minlength=phases) / (2 * HALVINGS)
    low, high = _interval(float(value_1[0]), curve, shifts, picks, rng)
    return Halves(Estimate(float(value_1[0]), low, high), weight_S)


def _halved(
    curve_BS: Floats, shifts: tuple[Floats, Floats], picks: Picks
) -> tuple[Floats, list[tuple[int, Ints]]]:
    """Average over halvings of what either half measures at the phases that the other picks.

    Returns:
        the average for each curve, and each sign with the phases that were picked, [B, K].
    """
    one_BKS, other_BKS = (curve_BS[:, None, :] + shift_KS for shift_KS in shifts)
    value_B, chosen = np.zeros(len(curve_BS)), []
    for sign, choose in picks:
        for picking_BKS, measuring_BKS in ((one_BKS, other_BKS), (other_BKS, one_BKS)):
            index_BK = choose(picking_BKS, axis=-1)
            measured_BK = np.take_along_axis(measuring_BKS, index_BK[..., None], axis=-1)[..., 0]
            value_B += sign * measured_BK.mean(axis=-1) / 2
            chosen.append((sign, index_BK))
    return value_B, chosen


def _interval(
    value: float, curve: Rates, shifts: tuple[Floats, Floats], picks: Picks, rng: np.random.Generator
) -> tuple[float, float]:
    """Ends at which the extreme of a curve of that shape agrees with the estimate less its error there."""
    mean = float(curve.rate_R.mean())
    effect_S = curve.rate_R - mean
    seen = float(np.sqrt(effect_S @ effect_S))
    if not curve.deviation_CR.any():
        unseen = 1 - float(wilson(np.ones(1), curve.trials_R.min(keepdims=True))[0][0])
        return value - unseen, value + unseen
    shape_S = effect_S / seen if seen > 0 else effect_S
    noise_BS = rng.standard_normal((RESAMPLES, len(curve.deviation_CR))) @ curve.deviation_CR
    noise = float(np.sqrt((curve.deviation_CR**2).sum()))
    size_G = np.linspace(0, 1, 10) ** 2 * (seen + 4 * noise)
    level = mean * sum(sign for sign, _ in picks)
    truth_G = level + size_G * sum(sign * shape_S[choose(shape_S)] for sign, choose in picks)
    few = shifts[0][: HALVINGS // 2], shifts[1][: HALVINGS // 2]
    quantile = t_quantile(len(curve.deviation_CR) - 1)
    bounds_G2 = np.empty((len(size_G), 2))
    for g, size in enumerate(size_G):
        error_B = _halved(mean + size * shape_S + noise_BS, few, picks)[0] - truth_G[g]
        bounds_G2[g] = value - error_B.mean() + np.array([-1, 1]) * quantile * error_B.std()
    return _meeting(bounds_G2[:, 0], truth_G), _meeting(bounds_G2[:, 1], truth_G)


def _meeting(bound_G: Floats, truth_G: Floats) -> float:
    """Where the bound, a function of the true extreme, first meets it; its first value if that is beyond."""
    ahead_G = (bound_G - truth_G) * (1 if truth_G[-1] >= truth_G[0] else -1)
    behind = np.flatnonzero(ahead_G <= 0)
    if len(behind) == 0 or behind[0] == 0:
        return float(bound_G[0 if len(behind) else -1])
    g = behind[0]
    share = ahead_G[g - 1] / (ahead_G[g - 1] - ahead_G[g])
    return float(truth_G[g - 1] + share * (truth_G[g] - truth_G[g - 1]))
