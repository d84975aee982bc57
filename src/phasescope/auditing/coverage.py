"""Which phases a set of positions visits at a stride, and how evenly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from ..errors import UsageError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

STRIDES = (*range(2, 17), 32, 64, 128)
"""Strides that are looked at beside a model's own."""
SMALL = 5.0
"""Expected samples per phase below which the chi-squared distribution is not trusted (Cochran's rule)."""
DRAWS = 9999
CELLS = 200_000_000
"""Multinomial counts drawn at most: a wide stride gets fewer draws."""


@dataclass(frozen=True)
class Coverage:
    """The phases of one stride.

    Attributes:
        stride: the modulus.
        count_S: samples at each phase.
        p_value: probability of counts at least as uneven if each sample's phase were uniform and drawn by
            itself.
        p_method: how that was computed.
    """

    stride: int
    count_S: Ints
    p_value: float
    p_method: str

    @property
    def total(self) -> int:
        """Samples in all."""
        return int(self.count_S.sum())

    @property
    def share_S(self) -> Floats:
        """Share of the samples at each phase."""
        shares: Floats = self.count_S / self.total
        return shares

    @property
    def visited(self) -> int:
        """Phases with at least one sample."""
        return int((self.count_S > 0).sum())

    @property
    def effective(self) -> float:
        """Effective number of phases, exp of the entropy of their shares: S if even, 1 if all in one."""
        share = self.share_S[self.share_S > 0]
        return float(np.exp(-(share * np.log(share)).sum()))


def cover(position_N: Ints, stride: int, rng: np.random.Generator) -> Coverage:
    """Count the phases of a stride and test them against uniform exposure.

        chi² = Σ_s (n_s − N/S)² / (N/S)

    on S − 1 degrees of freedom where N/S ≥ 5; the exact binomial for two phases; otherwise its rank among
    9,999 multinomial draws.

    A small p says that the phases are not those of samples placed at random. A benchmark that places its
    samples by a plan may be *too even* for chance, which this test does not object to.

    Args:
        position_N: token positions, at least one.
        stride: at least 2.
        rng: of the draws.

    Raises:
        UsageError: without positions or phases.
    """
    if stride < 2:
        raise UsageError(f"stride {stride} has no phases; give one of at least 2")
    total = len(position_N)
    if not total:
        raise UsageError("no sample has a token position, so no phases to count")
    count_S = np.bincount(position_N % stride, minlength=stride).astype(np.int64)
    expected = total / stride
    if stride == 2:
        return Coverage(
            stride, count_S, float(stats.binomtest(int(count_S[0]), total).pvalue), "exact binomial"
        )
    uneven = float(((count_S - expected) ** 2).sum() / expected)
    if expected >= SMALL:
        return Coverage(stride, count_S, float(stats.chi2.sf(uneven, stride - 1)), "chi-squared")
    draws = min(DRAWS, CELLS // stride)
    as_uneven = sum(
        int((_uneven(total, stride, size, rng) >= uneven - 1e-9).sum()) for size in _sizes(draws, stride)
    )
    return Coverage(stride, count_S, (1 + as_uneven) / (1 + draws), f"{draws:,} multinomial draws")


def _uneven(total: int, stride: int, draws: int, rng: np.random.Generator) -> Floats:
    """chi² of so many draws of uniform counts."""
    drawn_DS = rng.multinomial(total, np.full(stride, 1 / stride), size=draws)
    chi2_D: Floats = ((drawn_DS - total / stride) ** 2).sum(axis=1) * stride / total
    return chi2_D


def _sizes(draws: int, stride: int) -> list[int]:
    """Draws in handfuls that fit in memory."""
    most = max(1, 5_000_000 // stride)
    return [min(most, draws - start) for start in range(0, draws, most)]
