"""Finding the period of a score in token positions, over candidate strides that are fixed beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from .designs import Groups, permuted_sums
from .fold import DEGREE, Fold, centred, each_cluster, fold_table, inverse, trend_basis, within_blocks
from .intervals import SIGNIFICANT
from .permutation import permutation_p, quadratic_form
from .table import Coordinate, Floats, Outcome, Table

CANDIDATES = (*range(2, 17), 32, 64, 128)
"""Strides that are looked for besides the model's own."""
IMPROVES = 0.01
"""p up to which a multiple improves on a stride: as often a false alarm names the multiple of a true period."""


@dataclass(frozen=True)
class Period:
    """What the search for a period found.

    Attributes:
        stride: the period; None if the scores are flat or nothing is testable.
        p_value: global p over all candidates and both statistics; None if nothing is testable.
        candidate_p: by testable candidate, its p corrected for the search.
        not_testable: candidates without two full turns in the layouts.
        share: by candidate, share of the variation within blocks that its phases explain.
        best: the candidate that explains most in units of noise, less two for each of its contrasts (Akaike's price),
            significant or not.
    """

    stride: int | None
    p_value: float | None
    candidate_p: dict[int, float]
    not_testable: list[int]
    share: dict[int, float]
    best: int | None = None

    @property
    def tested(self) -> list[int]:
        """Candidates with two full turns in the layouts."""
        return [*self.candidate_p]

    def twice(self) -> Period:
        """The same with p doubled, where it was looked for a second time."""
        p_value = None if self.p_value is None else min(1.0, 2 * self.p_value)
        significant = p_value is not None and p_value <= SIGNIFICANT
        return replace(self, p_value=p_value, stride=self.stride if significant else None)

    def detail(self) -> dict[str, Any]:
        """What was searched, as a finding records it."""
        return {
            "tested": self.tested,
            "not_testable": self.not_testable,
            "candidate_p": {str(stride): p for stride, p in self.candidate_p.items()},
            "share_explained": {str(stride): share for stride, share in self.share.items()},
        }


def find_period(
    table: Table,
    outcome: Outcome,
    coordinate: Coordinate,
    candidates: Sequence[int],
    rng: np.random.Generator,
    draws: int,
    *,
    own: bool = False,
    few: bool = False,
    trend: Floats | None = None,
) -> Period:
    """Search for a period among the candidates that fit twice into the layouts.

    For each candidate the scores, without block means and a cubic trend in position, are folded on true
    positions. Two statistics look at the fold: the sum of squares over phases (a slope, a wave) and the
    largest single phase (one bad phase among many). Each is turned into a p by the gamma distribution with
    the mean and variance of its own permutations; the smallest p over candidates and statistics is the test
    statistic, and its place among the smallest p of the permutations is the global p. The gamma is only a
    scale on which candidates compare: that last step makes the test exact whatever its fit.

    Named is the smallest stride that its multiples do not significantly improve; see `_Search.named`.

    Args:
        table: the trials.
        outcome: which outcome.
        coordinate: which position is folded.
        candidates: strides of at least 2.
        rng: of the permutations.
        draws: permutations per test.
        own: clusters have phase profiles and trends of their own, because their positions do not compare.
        few: for a few layouts of a few contexts. The trend is fitted again to every permutation and each
            statistic taken as −log(1 − R²) of what that leaves, because residuals of a fit vary less than
            the noise: with 16 layouts of one context, of which a cubic takes 3, permuting them as they are
            has size 0.15 at nominal 0.05. And each fold competes with a smooth curve of as many degrees of
            freedom, whose own −log p is taken off: a deterministic model answers without noise, and then
            any curve that is not exactly cubic looks like one of the long strides.
        trend: orthonormal columns that the scores are to be free of; by default a cubic in position.

    Source: Westfall and Young 1993, Resampling-Based Multiple Testing, for the smallest p and its null;
        Anderson and Legendre 1999, Journal of Statistical Computation and Simulation 62, 271–303, for the refit.
    """
    if trend is None:
        trend = trend_basis(table, coordinate, own=own)
    fitting = [s for s in sorted(set(candidates)) if 2 * s <= table.n_layouts]
    designs = {s: fold_table(table, coordinate, s, trend, own=own) for s in fitting}
    folds = {s: design for s, design in designs.items() if len(design.phase_S) > design.profiles}
    not_testable = sorted(set(candidates) - folds.keys())
    if not folds:
        return Period(None, None, {}, not_testable, {})
    values_CLQ = within_blocks(table.outcomes[outcome], table, trend)
    smooth = _smooth(table, coordinate, trend, max(folds) - 1, own) if few else None
    search = _Search(values_CLQ, folds, smooth, rng, draws)
    curve = [] if smooth is None else [smooth]
    sums = search.sums(values_CLQ, [*folds.values()], curve)
    total = float((values_CLQ**2).sum())
    left_D = None
    if few and total > 0:
        left_D = np.maximum(total - (sums[len(folds)] ** 2).sum(axis=1), 1e-12 * total)
    square_D, score_D = {}, {}
    for (stride, fold), sum_DS in zip(folds.items(), sums, strict=False):
        square_D[stride] = quadratic_form(sum_DS, fold.inverse_SS)
        best_D = np.maximum(
            *(surprise(part_D, left_D) for part_D in (square_D[stride], _spike(sum_DS, fold)))
        )
        score_D[stride] = best_D - _curve(sums[-1], fold.profiles * (stride - 1), left_D)
    best_D = np.max([*score_D.values()], axis=0)
    p_value = permutation_p(best_D)
    explained = {s: _of_rest(square_D[s], left_D) for s in folds}
    return Period(
        stride=search.named(explained) if p_value <= SIGNIFICANT else None,
        p_value=p_value,
        candidate_p={s: float(np.mean(best_D >= score_D[s][0] * (1 - 1e-9))) for s in folds},
        not_testable=not_testable,
        share={s: float(square_D[s][0]) / total if total > 0 else 0.0 for s in folds},
        best=max(folds, key=lambda stride: search.gain(stride, explained)),
    )


def _smooth(table: Table, coordinate: Coordinate, trend: Floats, count: int, own: bool) -> Floats:
    """Orthonormal polynomials in position beyond the trend, `count` for every profile, from smooth to rough."""
    position_L = table.position(coordinate)[0, :, 0].astype(np.float64)
    scaled_L = 2 * (position_L - position_L.min()) / np.ptp(position_L) - 1
    degrees = min(DEGREE + count, len(position_L) - 2)
    power_LK = np.polynomial.chebyshev.chebvander(scaled_L, degrees)[:, DEGREE + 1 :]
    shape = (*table.asked.shape, power_LK.shape[1])
    columns = centred(np.broadcast_to(power_LK[None, :, None, :], shape), table)
    if own:  # the smooth ones of all contexts first, then the next rougher ones
        columns = each_cluster(columns)
        order = np.arange(columns.shape[-1]).reshape(table.n_clusters, -1).T.reshape(-1)
        columns = columns[..., order]
    # No columns at all are left where few lengths leave nothing beyond the trend.
    column_NK = columns.reshape(len(trend), -1)
    return _orthonormal(column_NK - trend @ (trend.T @ column_NK))


def _orthonormal(column_NK: Floats) -> Floats:
    """Columns with the same nested spans, orthonormal; those that add nothing become 0."""
    axis_NK, size_KK = np.linalg.qr(column_NK)
    size_K = np.abs(np.diag(size_KK))
    return axis_NK * (size_K > 1e-9 * max(float(size_K.max(initial=0)), 1e-300))


def _curve(sum_DK: Floats, columns: int, left_D: Floats | None) -> Floats | float:
    """−log p of each draw of a smooth curve with so many columns beyond the trend; 0 where none competes."""
    return 0.0 if left_D is None else surprise((sum_DK[:, :columns] ** 2).sum(axis=1), left_D)


def _of_rest(squares_D: Floats, left_D: Floats | None) -> Floats:
    """−log(1 − R²) of what is left to explain, which for small R² is R²; without a rest the squares themselves."""
    return squares_D if left_D is None else -np.log1p(-np.minimum(squares_D / left_D, 1 - 1e-12))


def _spike(sum_DS: Floats, design: Fold) -> Floats:
    """What the most striking single phase of each draw explains."""
    size_S = np.diag(design.gram_SS)
    return np.asarray((sum_DS**2 / np.where(size_S > 1e-6, size_S, np.inf)).max(axis=1))


def surprise(squares_D: Floats, left_D: Floats | None = None) -> Floats:
    """−log p of what each draw explains, under the gamma distribution with the mean and variance of all other draws.

    The observed draw must not be set apart: if it alone were left out of the moments, every permutation
    would be damped by itself while the observed one is not, and the test would be too loud (size 6 % of
    nominal 5 with 199 draws). The tail is taken by the cube root of Wilson and Hilferty, whose normal does
    not underflow however strong the effect.
    """
    statistic_D = _of_rest(squares_D, left_D)
    others, largest = len(statistic_D) - 1, statistic_D.max()
    if np.ptp(statistic_D) <= 1e-9 * largest:
        return np.zeros_like(statistic_D)
    scaled_D = statistic_D / largest
    mean_D = np.maximum(scaled_D.sum() - scaled_D, 1e-12) / others
    variance_D = ((scaled_D**2).sum() - scaled_D**2) / others - mean_D**2
    sd_D = np.sqrt(np.maximum(variance_D, 1e-18) / (9 * mean_D**2))
    surprise_D: Floats = -stats.norm.logsf((np.cbrt(scaled_D / mean_D) - (1 - sd_D**2)) / sd_D)
    return surprise_D


@dataclass(frozen=True)
class _Search:
    """Scores within blocks without trend, the folds that compete, the smooth curve against them, and the draws."""

    values_CLQ: Floats
    folds: dict[int, Fold]
    smooth_NK: Floats | None
    rng: np.random.Generator
    draws: int

    def sums(self, values_CLQ: Floats, folds: Sequence[Fold], curve: Sequence[Floats]) -> list[Floats]:
        """Permuted sums of folds, their trend and the curve in one pass."""
        designs: list[Groups | Floats] = [*(fold.groups for fold in folds), folds[0].trend_NK, *curve]
        sums = permuted_sums(values_CLQ, designs, self.rng, self.draws)
        trend_DK = sums[len(folds)]
        within = [fold.without_trend(sum_DS, trend_DK) for fold, sum_DS in zip(folds, sums, strict=False)]
        return [*within, *sums[len(folds) :]]

    def gain(self, stride: int, explained: dict[int, Floats]) -> float:
        """What a stride explains in units of noise, less two for each of its contrasts."""
        contrasts = len(self.folds[stride].phase_S) - self.folds[stride].profiles
        noise = explained[stride][1:].mean() / contrasts
        return float(explained[stride][0] / noise) - 2 * contrasts if noise > 0 else 0.0

    def named(self, explained: dict[int, Floats]) -> int:
        """The smallest stride that its multiples do not significantly improve.

        The search starts at the stride that explains most after two units per phase contrast for the noise it
        picks up (Akaike's price). It then takes the smallest divisor of that stride that has an effect of its
        own and that no testable multiple improves; where even the stride itself is improved, it goes on from
        the best of its multiples.
        """
        start = max(self.folds, key=lambda stride: self.gain(stride, explained))
        while True:
            for stride in (s for s in self.folds if start % s == 0):
                own = stride == start or permutation_p(explained[stride]) <= SIGNIFICANT
                if own and not self.improved(stride):
                    return stride
            multiples = [s for s in self.folds if s > start and s % start == 0]
            start = max(multiples, key=lambda stride: self.gain(stride, explained))

    def improved(self, stride: int) -> bool:
        """Whether some multiple of the stride explains more than its own phases do.

        The phases of the stride are taken out of scores and designs, and what the multiples explain of the rest
        is compared with its permutations; the smallest p over the multiples is the statistic.
        """
        base = self.folds[stride]
        multiples = [fold for s, fold in self.folds.items() if s > stride and s % stride == 0]
        if not multiples:
            return False

        rest_CLQ = base.fit(self.values_CLQ)[1]
        curve = [] if self.smooth_NK is None else [_orthonormal(_without(base, self.smooth_NK))]
        sums = self.sums(rest_CLQ, multiples, curve)
        left_D, whole = None, float((rest_CLQ**2).sum())
        if curve:
            base_DS, trend_DK = sums[0] @ _merging(multiples[0], base), sums[len(multiples)]
            taken_D = quadratic_form(base_DS, base.inverse_SS) + (trend_DK**2).sum(axis=1)
            left_D = np.maximum(whole - taken_D, max(1e-12 * whole, 1e-300))
        surprises = []
        for multiple, sum_DS in zip(multiples, sums, strict=False):
            own_SS = _own(multiple, base)
            inverse_SS = inverse(own_SS.T @ multiple.gram_SS @ own_SS)
            surprise_D = surprise(quadratic_form(sum_DS @ own_SS, inverse_SS), left_D)
            columns = base.profiles * (multiple.modulus - stride)
            surprises.append(surprise_D - _curve(sums[-1], columns, left_D))
        return permutation_p(np.max(surprises, axis=0)) <= max(IMPROVES, 1 / (1 + self.draws))


def _merging(multiple: Fold, base: Fold) -> Floats:
    """1 where a phase of a multiple is a phase of its base: the base's columns are the multiple's times this."""
    profile_S, phase_S = np.divmod(multiple.phase_S, multiple.modulus)
    merged_S = phase_S % base.modulus + (base.modulus * profile_S if base.profiles > 1 else 0)
    merging_SB: Floats = (merged_S[:, None] == base.phase_S).astype(np.float64)
    return merging_SB


def _own(multiple: Fold, base: Fold) -> Floats:
    """What makes of a multiple's columns those without the base's phases."""
    merging_SB = _merging(multiple, base)
    own_SS: Floats = np.eye(len(merging_SB)) - merging_SB @ base.inverse_SS @ merging_SB.T @ multiple.gram_SS
    return own_SS


def _without(base: Fold, column_NK: Floats) -> Floats:
    """Columns without what the base's phases say of them."""
    shape = base.groups.label_CLQ.shape
    left = [base.fit(column_N.reshape(shape))[1].reshape(-1) for column_N in column_NK.T]
    return np.array(left).T.reshape(column_NK.shape)
