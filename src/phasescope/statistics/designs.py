"""Permutation of layouts within clusters: one draw moves a whole context, all its questions at once.

Questions that share a context share its noise in each layout. Permuting phases within each block as if
they were independent has size 0.24 at nominal 0.05 for 64 questions a context; permuting the layouts of
a context jointly, while the positions stay, keeps the shared noise together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from .table import Floats, Ints

POOL = 2048
"""Orders of layouts that all clusters together have at least, if as many are drawn at all."""
LEAST = 32
"""Orders that each cluster has at least."""
HELD = 1 << 20
"""Outcomes in other orders that are held at a time."""


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

    def span(self, batch: slice) -> tuple[int, int]:
        """The first column that is not 0 in some clusters, and one past the last."""
        label_BLQ = self.label_CLQ[batch]
        return max(int(label_BLQ.min()), 0), int(label_BLQ.max()) + 1

    def moved_sums(self, batch: slice, first: int, end: int, moved_BLQM: Floats) -> Floats:
        """Sums of values of some clusters in the columns from `first` to `end`; shape [B, end − first, M]."""
        clusters, width, moves = len(moved_BLQM), end - first, moved_BLQM.shape[3]
        label_BN = np.maximum(self.label_CLQ[batch].reshape(clusters, -1) - first, 0)
        row_N = (label_BN + width * np.arange(clusters)[:, None]).reshape(-1).astype(np.int32)
        ends = np.arange(len(row_N) + 1, dtype=np.int32)
        groups = sparse.csc_array((np.ones(len(row_N)), row_N, ends), shape=(clusters * width, len(row_N)))
        sums: Floats = (groups @ moved_BLQM.reshape(-1, moves)).reshape(clusters, width, moves)
        return sums


def grouped(phase_CLQ: Ints, asked: npt.NDArray[np.bool_]) -> tuple[Ints, Floats, Groups]:
    """Trials by their phase.

    Args:
        phase_CLQ: counted from 0; any small numbers.
        asked: which trials were; shape [C, L, Q].

    Returns:
        the phases that occur, how many trials each has, and the trials of each.
    """
    count_P = np.bincount(phase_CLQ[asked])
    phase_S = np.flatnonzero(count_P)
    label_P = np.full(max(len(count_P), int(phase_CLQ.max()) + 1), -1)
    label_P[phase_S] = np.arange(len(phase_S))
    label_CLQ = np.where(asked, label_P[phase_CLQ], -1)
    return phase_S, count_P[phase_S].astype(np.float64), Groups(label_CLQ, len(phase_S))


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

    def _of(self, batch: slice) -> Floats:
        own: Floats = self.column_NK.reshape(*self.shape, self.count)[batch]
        return own

    def span(self, batch: slice) -> tuple[int, int]:
        """As `Groups.span`."""
        used = np.flatnonzero(self._of(batch).any(axis=(0, 1, 2)))
        return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)

    def moved_sums(self, batch: slice, first: int, end: int, moved_BLQM: Floats) -> Floats:
        """As `Groups.moved_sums`."""
        clusters, width, moves = len(moved_BLQM), end - first, moved_BLQM.shape[3]
        trials = moved_BLQM.shape[1] * moved_BLQM.shape[2]
        own_BNK = self._of(batch)[..., first:end].reshape(clusters, trials, width)
        sums: Floats = own_BNK.swapaxes(1, 2) @ moved_BLQM.reshape(clusters, trials, moves)
        return sums


def permuted_sums(
    values_CLQ: Floats, designs: Sequence[Groups | Floats], rng: np.random.Generator, draws: int
) -> list[Floats]:
    """Sums of permuted outcomes in each column of some designs.

        sum_dk = Σ_clq  y[c, π_dc(l), q] · column[clq, k]        π_dc a permutation of the layouts of c

    A position keeps its column, so a layout may mean another residue for each question. Each cluster has a pool of
    M random orders of its layouts, the observed one among them, whose sums are taken once, and a draw takes one of
    each cluster's pool. As the observed draw is one of 1 + D that are drawn alike, the test stays exact, and costs
    C·M·L·Q sums a design and D·C a column, in place of D·C·L a column. Where the columns are orthogonal to block means
    and trend, permuted outcomes need no second detrending (Freedman–Lane).

    Args:
        values_CLQ: outcomes without block means and trend, 0 where no question was asked.
        designs: groups of trials, or columns over N = C·L·Q trials in that order.
        rng: of the permutations.
        draws: how many.

    Returns:
        for each design an array of shape [1 + draws, K]; row 0 is the observed one.

    Source: Freedman and Lane 1983, Journal of Business and Economic Statistics 1, 292–298; Besag and Clifford 1989,
        Biometrika 76, 633–642, for draws that depend on each other.
    """
    parts = [one if isinstance(one, Groups) else Written(one, values_CLQ.shape) for one in designs]
    sums = [np.zeros((1 + draws, part.count)) for part in parts]
    clusters, layouts, questions = values_CLQ.shape
    orders, pick_XC = _picked(clusters, rng, draws)
    together = max(1, HELD // (layouts * questions * orders))
    for first in range(0, clusters, together):
        batch = slice(first, min(first + together, clusters))
        spans = [part.span(batch) for part in parts]
        found = []
        for moved_BLQM in _moved(values_CLQ[batch], pick_XC[0, batch], orders, rng):
            own = [part.moved_sums(batch, *span, moved_BLQM) for part, span in zip(parts, spans, strict=True)]
            found.append(np.concatenate(own, axis=1).swapaxes(1, 2))
        table_BMK = np.concatenate(found, axis=1)
        place_XB = pick_XC[:, batch] + orders * np.arange(len(table_BMK), dtype=np.int32)
        sum_XK = _chosen(place_XB, table_BMK.reshape(-1, table_BMK.shape[2]))
        ends = np.cumsum([end - begin for begin, end in spans])[:-1]
        for whole, span, own_XK in zip(sums, spans, np.split(sum_XK, ends, axis=1), strict=True):
            whole[:, slice(*span)] += own_XK
    return sums


def _picked(clusters: int, rng: np.random.Generator, draws: int) -> tuple[int, npt.NDArray[np.int32]]:
    """How many orders each cluster's pool has, and which of them each draw takes; row 0 takes the observed ones."""
    if clusters == 1:
        return 1 + draws, np.arange(1 + draws, dtype=np.int32)[:, None]
    orders = min(1 + draws, max(LEAST, -(-POOL // clusters)))
    return orders, rng.integers(orders, size=(1 + draws, clusters), dtype=np.int32)


def _moved(
    values_BLQ: Floats, straight_B: npt.NDArray[np.int32], orders: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Values of some clusters under random orders of their layouts, of which one each is the observed; [B, L, Q, M]."""
    clusters, layouts, questions = values_BLQ.shape
    straight_L = np.arange(layouts, dtype=np.min_scalar_type(layouts))
    for start in range(0, orders, step := max(1, HELD // (clusters * layouts * questions))):
        count = min(step, orders - start)
        order_BML = rng.permuted(np.broadcast_to(straight_L, (clusters, count, layouts)), axis=2)
        for order_ML, straight in zip(order_BML, straight_B - start, strict=True):
            if 0 <= straight < count:
                order_ML[straight] = straight_L
        moved_BMLQ = values_BLQ[np.arange(clusters)[:, None, None], order_BML]
        yield np.ascontiguousarray(np.moveaxis(moved_BMLQ, 1, 3))


def _chosen(index_XI: npt.NDArray[np.int32], rows_YK: Floats) -> Floats:
    """Sums of rows, chosen by their numbers; shape [X, K]."""
    count, each = index_XI.shape
    ends = np.arange(count + 1, dtype=np.int32) * each
    chosen = sparse.csr_array(
        (np.ones(index_XI.size), index_XI.reshape(-1), ends), shape=(count, len(rows_YK))
    )
    sum_XK: Floats = chosen @ rows_YK
    return sum_XK
