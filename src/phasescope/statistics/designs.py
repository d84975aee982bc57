"""Permutation of layouts within clusters: one draw moves a whole context, all its questions at once.

Questions that share a context share its noise in each layout. Permuting phases within each block as if
they were independent has size 0.24 at nominal 0.05 for 64 questions a context; permuting the layouts of
a context jointly, while the positions stay, keeps the shared noise together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .table import Floats, Ints

CHUNK = 1 << 26
"""Permuted numbers of layouts held at a time, in one or two bytes each."""
PAIRS = 1 << 22
"""Products of a layout's outcomes with another's columns that are held at a time."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Indicator columns of groups of trials, never written out: a million trials have one label each.

    Attributes:
        label_CLQ: the group of each trial, counted from 0; −1 where no question was asked.
        count: how many groups there are.
    """

    label_CLQ: Ints
    count: int

    def sums(self, values_CLQ: Floats) -> Floats:
        """Sum of the values in each group."""
        labels, weights = self.label_CLQ.reshape(-1) + 1, values_CLQ.reshape(-1)
        sums: Floats = np.bincount(labels, weights, self.count + 1)[1:].astype(np.float64)
        return sums

    def cluster_sums(self, values_CLQ: Floats) -> Floats:
        """Sum of the values of each cluster in each group; shape [C, count]."""
        clusters, width = len(self.label_CLQ), self.count + 1
        labels = self.label_CLQ + 1 + width * np.arange(clusters)[:, None, None]
        sums = np.bincount(labels.reshape(-1), values_CLQ.reshape(-1), clusters * width)
        return sums.reshape(clusters, width)[:, 1:].astype(np.float64)

    def gram(self, weight_CQ: Floats | None = None) -> Floats:
        """Gᵀ W G of the columns G without block means: Σ_b w_b (diag n_b − n_b n_bᵀ / L), n_b a block's counts."""
        clusters, layouts, questions = self.label_CLQ.shape
        width = self.count + 1
        block_CQ = np.arange(clusters * questions).reshape(clusters, 1, questions)
        labels = (self.label_CLQ + 1 + width * block_CQ).reshape(-1)
        count_BS = np.bincount(labels, minlength=clusters * questions * width).reshape(-1, width)[:, 1:]
        weighted_BS = count_BS if weight_CQ is None else count_BS * weight_CQ.reshape(-1, 1)
        gram: Floats = (
            np.diag(weighted_BS.sum(axis=0)) - weighted_BS.T @ count_BS.astype(np.float64) / layouts
        )
        return gram

    def span(self, cluster: int) -> tuple[int, int]:
        """The first column that is not 0 in a cluster, and one past the last."""
        label_LQ = self.label_CLQ[cluster]
        return max(int(label_LQ.min()), 0), int(label_LQ.max()) + 1

    def write(self, cluster: int, first: int, out_QLK: Floats) -> None:
        """Write the columns of a cluster from `first` on over zeros."""
        label_QL = self.label_CLQ[cluster].T
        questions, layouts = np.indices(label_QL.shape, sparse=True)
        out_QLK[questions, layouts, np.maximum(label_QL - first, 0)] = label_QL >= 0


def block_counts(groups: Groups) -> Floats:
    """How many trials of each block are in each group; shape [C·Q, count]."""
    clusters, _, questions = groups.label_CLQ.shape
    width, blocks = groups.count + 1, clusters * questions
    label_CLQ = groups.label_CLQ + 1 + width * np.arange(blocks).reshape(clusters, 1, questions)
    count_BS = np.bincount(label_CLQ.reshape(-1), minlength=blocks * width).reshape(blocks, width)
    return count_BS[:, 1:].astype(np.float64)


def joint_gram(groups: Sequence[Groups]) -> Floats:
    """Gᵀ G of the columns of several groupings side by side, without block means; shape [Σ count, Σ count]."""
    layouts = groups[0].label_CLQ.shape[1]
    count_BX = np.hstack([block_counts(one) for one in groups])
    gram: Floats = np.block([[_shared(one, other) for other in groups] for one in groups])
    gram -= count_BX.T @ count_BX / layouts
    return gram


def _shared(one: Groups, other: Groups) -> Floats:
    """How many trials two groups share, for all pairs of them."""
    shape = one.count + 1, other.count + 1
    pair_CLQ = (one.label_CLQ + 1) * shape[1] + other.label_CLQ + 1
    shared = np.bincount(pair_CLQ.reshape(-1), minlength=shape[0] * shape[1]).reshape(shape)
    inner: Floats = shared[1:, 1:].astype(np.float64)
    return inner


def trend_cross(trend_NK: Floats, groups: Groups) -> Floats:
    """trendᵀ indicator of each group; shape [K, count]."""
    sums = [groups.sums(column_N.reshape(groups.label_CLQ.shape)) for column_N in trend_NK.T]
    return np.array(sums).reshape(-1, groups.count)


@dataclass(frozen=True, eq=False)
class Written:
    """Columns that are written out, of shape [C·L·Q, K]."""

    column_NK: Floats
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many columns there are."""
        return int(self.column_NK.shape[1])

    def _of(self, cluster: int) -> Floats:
        own_LQK: Floats = self.column_NK.reshape(*self.shape, self.count)[cluster]
        return own_LQK

    def span(self, cluster: int) -> tuple[int, int]:
        """As `Groups.span`."""
        used = np.flatnonzero(self._of(cluster).any(axis=(0, 1)))
        return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)

    def write(self, cluster: int, first: int, out_QLK: Floats) -> None:
        """As `Groups.write`."""
        out_QLK[:] = self._of(cluster)[..., first : first + out_QLK.shape[2]].swapaxes(0, 1)


def permuted_sums(
    values_CLQ: Floats, designs: Sequence[Groups | Floats], rng: np.random.Generator, draws: int
) -> list[Floats]:
    """Sums of permuted outcomes in each column of some designs.

        sum_dk = Σ_clq  y[c, π_dc(l), q] · column[clq, k]        π_dc a permutation of the layouts of c

    A position keeps its column, so a layout may mean another residue for each question. Per cluster, what the
    outcomes of layout m would add in the place of layout l is one number a column, Σ_q y[m, q] · column[l, q, k];
    a draw adds up L of them, whatever the number of questions. Where the columns are orthogonal to block means
    and trend, permuted outcomes need no second detrending (Freedman–Lane).

    Args:
        values_CLQ: outcomes without block means and trend, 0 where no question was asked.
        designs: groups of trials, or columns over N = C·L·Q trials in that order.
        rng: of the permutations.
        draws: how many.

    Returns:
        for each design an array of shape [1 + draws, K]; row 0 is the observed one.

    Source: Freedman and Lane 1983, Journal of Business and Economic Statistics 1, 292–298.
    """
    parts = [one if isinstance(one, Groups) else Written(one, values_CLQ.shape) for one in designs]
    sums = [np.zeros((1 + draws, part.count)) for part in parts]
    clusters, layouts, questions = values_CLQ.shape
    kind = np.min_scalar_type(layouts)
    straight_L = np.arange(layouts, dtype=kind)
    size = max(1, CHUNK // (clusters * layouts))
    for start in range(0, draws, size):
        count = min(size, draws - start)
        order_DCL = rng.permuted(np.broadcast_to(straight_L, (count, clusters, layouts)), axis=2)
        for cluster in range(clusters):
            spans = [part.span(cluster) for part in parts]
            ends = np.cumsum([0, *(end - first for first, end in spans)])
            column_QLK = np.zeros((questions, layouts, ends[-1]))
            for part, (first, _), left, right in zip(parts, spans, ends, ends[1:], strict=False):
                part.write(cluster, first, column_QLK[..., left:right])
            added_DK = _added(values_CLQ[cluster], order_DCL[:, cluster], column_QLK)
            for whole, (first, end), left, right in zip(sums, spans, ends, ends[1:], strict=False):
                whole[1 + start : 1 + start + count, first:end] += added_DK[:, left:right]
    for whole, design in zip(sums, parts, strict=True):
        whole[0] = _observed(values_CLQ, design)
    return sums


def _observed(values_CLQ: Floats, design: Groups | Written) -> Floats:
    if isinstance(design, Groups):
        return design.sums(values_CLQ)
    sums: Floats = values_CLQ.reshape(-1) @ design.column_NK
    return sums


def _added(values_LQ: Floats, order_DL: Ints, column_QLK: Floats) -> Floats:
    """What one cluster adds to each draw's sums."""
    questions, layouts, width = column_QLK.shape
    draws = len(order_DL)
    sum_DK = np.zeros((draws, width))
    step = max(1, PAIRS // max(layouts * width, 1))
    for first in range(0, layouts, step):
        part_QLK = column_QLK[:, first : first + step]
        places = part_QLK.shape[1]
        pair_XK = (values_LQ @ part_QLK.reshape(questions, -1)).reshape(layouts * places, width)
        index_DP = np.multiply(order_DL[:, first : first + step], places, dtype=np.int32)
        index_DP += np.arange(places, dtype=np.int32)
        chosen = sparse.csr_array(
            (np.ones(draws * places), index_DP.reshape(-1), np.arange(draws + 1, dtype=np.int32) * places),
            shape=(draws, layouts * places),
        )
        sum_DK += chosen @ pair_XK
    return sum_DK
