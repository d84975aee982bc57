"""The phase analysis of answers that others have paid for: unpaired samples, each at one phase only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import stats

from ..statistics.intervals import SIGNIFICANT, Rates, wilson
from ..statistics.period import IMPROVES, find_period
from ..statistics.permutation import permutation_p
from ..statistics.phase_effect import phase_sd
from ..statistics.table import Table
from ..wording import p_words
from .coverage import Floats, Ints

EXACT = 10_000
"""Samples up to which scores are permuted; the limit of the permutations is used beyond."""
GROUPS = 1000
"""Random groups of samples that stand for clusters where there are more samples than this."""
DEGREE = 3


@dataclass(frozen=True)
class PhaseRates:
    """Accuracy by phase at one stride.

    Attributes:
        stride: the modulus.
        count_S, rate_S: samples and their mean score at each phase; NaN where there is none.
        low_S, high_S: Wilson's 95 % interval, samples counting as independent.
        spread: phase SD with its interval, noise removed; None where a phase has fewer than two samples.
        p_value: of this stride, corrected for the search over all of them; None where it was not tested.
    """

    stride: int
    count_S: Ints
    rate_S: Floats
    low_S: Floats
    high_S: Floats
    spread: tuple[float, float, float] | None
    p_value: float | None


@dataclass(frozen=True)
class Results:
    """What the scores say of phases.

    Attributes:
        accuracy: mean score.
        total: samples with a score.
        p_value: one global p over all strides that were tested; None if none could be.
        period: the stride that was found; None for none.
        tested, not_testable: strides with and without two samples per phase.
        method: how the p-values came about, in words.
        by_stride: rates by phase, one entry per stride.
        alike: all scores are the same, so that nothing can be tested.
    """

    accuracy: float
    total: int
    p_value: float | None
    period: int | None
    tested: tuple[int, ...]
    not_testable: tuple[int, ...]
    method: str
    by_stride: tuple[PhaseRates, ...]
    alike: bool = False

    @property
    def words(self) -> str:
        """What the scores say of a period."""
        if self.alike:
            return "its scores do not vary, so that no period can be tested"
        if self.p_value is None:
            return "its scores are too few to test any of these strides for a period"
        p = p_words(self.p_value)
        if self.period is None:
            return f"its scores show no period ({p})"
        return f"its scores repeat every {self.period} tokens ({p})"


PERMUTED = (
    "scores permuted over samples after a cubic trend in position is removed; the smallest p over strides and "
    "two statistics (all phases, one phase), against its own permutations"
)
LIMIT = (
    "chi-squared tests of phases after a cubic trend in position is removed; the smallest p over strides, against "
    "draws from the normal limit of the permutations"
)
ALIKE = "no test, because all scores are the same"


def analyse_scores(
    position_N: Ints, score_N: Floats, strides: Sequence[int], rng: np.random.Generator, draws: int = 2000
) -> Results:
    """Test whether scores depend on the phase, and describe them by phase.

    There are no blocks here: every sample is asked at one position only, so samples differ in more than
    phase, and the test has less power than one within blocks. A cubic trend in position is removed, so that
    depth does not look like phase. Samples count as independent.

    Args:
        position_N: token positions of the samples that have a score.
        score_N: their scores, 0 to 1.
        strides: candidates, fixed beforehand.
        rng: of the permutations.
        draws: permutations per test.
    """
    alike = bool(np.ptp(score_N) == 0)
    method = ALIKE if alike else PERMUTED if len(score_N) <= EXACT else LIMIT
    p_value, stride, by_candidate, tested = None, None, dict[int, float](), tuple[int, ...]()
    if method == PERMUTED:
        found = find_period(_table(position_N, score_N), "accuracy", "source", strides, rng, draws)
        p_value, stride, by_candidate = found.p_value, found.stride, found.candidate_p
        tested = tuple(found.tested)
    elif method == LIMIT:
        p_value, stride, by_candidate = limit_test(position_N, score_N, strides, rng, draws)
        tested = tuple(by_candidate)
    return Results(
        accuracy=float(score_N.mean()),
        total=len(score_N),
        p_value=p_value,
        period=stride,
        tested=tested,
        not_testable=() if alike else tuple(sorted(set(strides) - set(tested))),
        method=method,
        by_stride=tuple(_rates(position_N, score_N, s, by_candidate.get(s), rng) for s in strides),
        alike=alike,
    )


def _table(position_N: Ints, score_N: Floats) -> Table:
    """All samples as the layouts of one question: permuting layouts then permutes samples."""
    position_CLQ = position_N.reshape(1, -1, 1)
    return Table(
        condition="results",
        source_CLQ=position_CLQ,
        query_CLQ=position_CLQ,
        asked_CQ=np.ones((1, 1), dtype=np.bool_),
        outcomes={"accuracy": score_N.reshape(1, -1, 1)},
    )


def _rates(
    position_N: Ints, score_N: Floats, stride: int, p_value: float | None, rng: np.random.Generator
) -> PhaseRates:
    """Rates with Wilson's intervals, and their SD without noise."""
    phase_N = position_N % stride
    count_S = np.bincount(phase_N, minlength=stride).astype(np.int64)
    sum_S = np.bincount(phase_N, score_N, minlength=stride)
    rate_S = np.divide(sum_S, count_S, out=np.full(stride, np.nan), where=count_S > 0)
    low_S, high_S = np.full(stride, np.nan), np.full(stride, np.nan)
    seen = count_S > 0
    low_S[seen], high_S[seen] = wilson(rate_S[seen], count_S[seen].astype(np.float64))
    spread = None
    if count_S.min() >= 2 and len(score_N) >= 8:
        found = phase_sd(_effects(phase_N, score_N, count_S, rate_S, rng))
        if found.value is not None and found.low is not None and found.high is not None:
            spread = (found.value, found.low, found.high)
    return PhaseRates(stride, count_S, rate_S, low_S, high_S, spread, p_value)


def _effects(
    phase_N: Ints, score_N: Floats, count_S: Ints, rate_S: Floats, rng: np.random.Generator
) -> Rates:
    """Phase rates less their mean, and what each sample, or random group of samples, adds to their error."""
    stride, total = len(rate_S), len(score_N)
    groups = min(total, GROUPS)
    group_N = rng.permutation(total) % groups
    # The residuals at a phase of n samples have n − 1 degrees of freedom.
    residual_N = (score_N - rate_S[phase_N]) / np.sqrt(count_S * (count_S - 1.0))[phase_N]
    cell_N = group_N * stride + phase_N
    sum_K = np.bincount(cell_N, residual_N, minlength=groups * stride)
    deviation_CS = np.asarray(sum_K, dtype=np.float64).reshape(groups, stride)
    deviation_CS -= deviation_CS.mean(axis=1, keepdims=True)
    return Rates(rate_S - rate_S.mean(), count_S.astype(np.float64), deviation_CS)


def limit_test(
    position_N: Ints, score_N: Floats, strides: Sequence[int], rng: np.random.Generator, draws: int
) -> tuple[float | None, int | None, dict[int, float]]:
    """The test of `find_period` for many samples, by the limit of its permutations.

    Permuted scores without trend, summed over phases, tend to a normal vector with covariance σ² GᵀG, G the
    phase indicators of all strides without trend. GᵀG needs counts only, so that a draw costs the number of
    phases and not of samples. Statistic per stride: chi² = Sᵀ (GᵀG)⁺ S / σ²; the smallest p over strides is
    compared with that of the draws.

    Differs from the permutation test: no single-phase statistic.

    Returns:
        the global p, the period if there is one, and p by stride, corrected for the search.
    """
    tested = [s for s in sorted(set(strides)) if 2 * s <= len(score_N) and len(np.unique(position_N % s)) > 1]
    if not tested:
        return None, None, {}
    basis_NK = _basis(position_N)
    residual_N = score_N - basis_NK @ (basis_NK.T @ score_N)
    variance = float(residual_N @ residual_N) / (len(score_N) - basis_NK.shape[1])
    if variance < 1e-12:
        return 1.0, None, dict.fromkeys(tested, 1.0)
    gram_KK, edges = _gram(position_N, tested, basis_NK)
    sum_K = np.concatenate([np.bincount(position_N % s, residual_N, minlength=s) for s in tested])
    size_K, axis_KK = np.linalg.eigh(gram_KK)
    root_KK = axis_KK * np.sqrt(np.maximum(size_K, 0.0))
    drawn_DK = rng.standard_normal((draws, len(sum_K))) @ root_KK.T
    sums_DK = np.vstack([sum_K / np.sqrt(variance), drawn_DK])
    square_DM, df_M = [], []
    for first, last in edges:
        size_S, axis_SS = np.linalg.eigh(gram_KK[first:last, first:last])
        kept = size_S > 1e-6 * size_S.max()
        square_DM.append((((sums_DK[:, first:last] @ axis_SS[:, kept]) ** 2) / size_S[kept]).sum(axis=1))
        df_M.append(int(kept.sum()))
    surprise_DM = -stats.chi2.logsf(np.stack(square_DM, axis=1), df_M)
    best_D = surprise_DM.max(axis=1)
    p_value = permutation_p(best_D)
    by_candidate = {s: float(np.mean(best_D >= surprise_DM[0, m] * (1 - 1e-9))) for m, s in enumerate(tested)}
    squares = {s: (float(square_DM[m][0]), df_M[m]) for m, s in enumerate(tested)}
    return p_value, _named(squares) if p_value <= SIGNIFICANT else None, by_candidate


def _basis(position_N: Ints) -> Floats:
    """Orthonormal columns of a cubic in position, the constant included."""
    centred_N = position_N - position_N.mean()
    scaled_N = centred_N / max(float(np.abs(centred_N).max()), 1.0)
    left_NK, size_K, _ = np.linalg.svd(scaled_N[:, None] ** np.arange(DEGREE + 1), full_matrices=False)
    return left_NK[:, size_K > 1e-9 * size_K.max()]


def _gram(position_N: Ints, strides: Sequence[int], basis_NK: Floats) -> tuple[Floats, list[tuple[int, int]]]:
    """GᵀG of all strides' phase indicators without trend, and where each stride's block begins and ends."""
    ends = np.cumsum([0, *strides])
    edges = [(int(a), int(b)) for a, b in pairwise(ends)]
    gram_KK = np.zeros((int(ends[-1]), int(ends[-1])))
    for i, a in enumerate(strides):
        for j, b in enumerate(strides[: i + 1]):
            counts = np.bincount(position_N % a * b + position_N % b, minlength=a * b).reshape(a, b)
            gram_KK[slice(*edges[i]), slice(*edges[j])] = counts
            gram_KK[slice(*edges[j]), slice(*edges[i])] = counts.T
    trend_KB = np.concatenate(
        [
            np.stack([np.bincount(position_N % s, column, minlength=s) for column in basis_NK.T], axis=1)
            for s in strides
        ]
    )
    return gram_KK - trend_KB @ trend_KB.T, edges


def _named(squares: dict[int, tuple[float, int]]) -> int:
    """The smallest divisor of the best stride that the stride does not significantly improve.

    Best is what explains most after two units per phase contrast (Akaike's price). The fold by a divisor is
    nested in the fold by its multiple, so their difference is chi-squared if the divisor tells all.
    """
    best = max(squares, key=lambda s: squares[s][0] - 2 * squares[s][1])
    square, df = squares[best]
    for stride in sorted(s for s in squares if best % s == 0):
        own, own_df = squares[stride]
        alone = stats.chi2.sf(own, own_df) <= SIGNIFICANT
        if alone and stats.chi2.sf(square - own, max(df - own_df, 1)) > IMPROVES:
            return stride
    return best
