"""What gates do on real inputs: mean weight per slot, entropy, recurrence, and what they make of facts; numpy only.

Suffixes: B rows, H KV heads, N windows, W slots of a window, P phases, C clusters (contexts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..grid import WindowGrid
from ..statistics.intervals import Rates, clustered_t, rates
from .coverage_score import CoverageScore, part
from .result import HeadGate

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Read:
    """Gate weights of one layer over the complete windows of some inputs.

    Attributes:
        layer: counted from 0.
        grids: one per KV head.
        weight_BHNWC: weights over the slots of each window; one channel for scalar gates.
        raw: a query reads the last so many tokens uncompressed, whether an entry holds them or not.
        closing: whether an entry is visible from the last token of its window on, or from the next.
    """

    layer: int
    grids: tuple[WindowGrid, ...]
    weight_BHNWC: Floats
    raw: int = 0
    closing: bool = True


@dataclass(frozen=True, slots=True)
class Fact:
    """Where one fact stands: its row among the inputs, its key's token and its value's."""

    row: int
    key: int
    value: int


@dataclass
class _Sums:
    """Per layer, over the windows of one context: weights, their squares, entropies, and how many."""

    weight_HW: Floats
    square_HW: Floats
    entropy_H: Floats
    windows: int


@dataclass
class GateTally:
    """Adds up what gates did, context by context.

    Args:
        stride: modulus of the phases.
    """

    stride: int
    _clusters: dict[int, list[_Sums]] = field(default_factory=dict)
    _parts: dict[int, list[tuple[int, tuple[Floats, Floats]]]] = field(default_factory=dict)

    def add(self, reads: Sequence[Read], facts: Sequence[Fact]) -> None:
        """Take in one context: the gates of all layers, and the facts that its inputs hold."""
        for read in reads:
            self._clusters.setdefault(read.layer, []).append(_sums(read))
            part_BHNW = part(read.weight_BHNWC.swapaxes(-1, -2)).mean(axis=-2)
            found = self._parts.setdefault(read.layer, [])
            for fact in facts:
                link = part_by(read, part_BHNW[fact.row], fact.key, fact.value)
                keep = part_by(read, part_BHNW[fact.row], fact.value, None)
                found.append((fact.key % self.stride, (link, keep)))

    def profiles(self, priors: dict[int, Floats]) -> list[HeadGate]:
        """The profile of every head of every layer.

        Args:
            priors: by layer, softmax of the learned bias, [H, W].
        """
        found = []
        for layer, clusters in sorted(self._clusters.items()):
            for head in range(len(clusters[0].entropy_H)):
                prior_HW = priors.get(layer)
                found.append(_profile(layer, head, clusters, None if prior_HW is None else prior_HW[head]))
        return found

    def coverage_score(self) -> CoverageScore | None:
        """The coverage score; None with fewer than two layers of gates, or a phase without a fact."""
        layers = sorted(layer for layer, parts in self._parts.items() if parts)
        if len(layers) < 2:
            return None
        link = [self._by_phase(layer, 0) for layer in layers[:-1]]
        keep = self._by_phase(layers[-1], 1)
        if keep is None or any(one is None for one in link):
            return None
        return CoverageScore(np.concatenate([one for one in link if one is not None]), keep)

    def _by_phase(self, layer: int, which: int) -> Floats | None:
        """Mean link (0) or keep (1) of each head at each phase."""
        phases = [
            [parts[which] for phase, parts in self._parts[layer] if phase == p] for p in range(self.stride)
        ]
        if not all(phases):
            return None
        return np.array([np.mean(parts, axis=0) for parts in phases]).T


def part_by(read: Read, part_HNW: Floats, token: int, by: int | None) -> Floats:
    """The largest part that a token has in a window that query `by` reads as an entry, for each head.

    1 where the query reads the token uncompressed: no visible entry holds it by then, or it is near enough.

    Args:
        read: the layer.
        part_HNW: parts of one input.
        token: its position.
        by: the query's position; None for the end of the input, far enough for no token to be read
            uncompressed for being near.
    """
    found_H = np.ones(len(read.grids))
    if by is not None and token > by - read.raw:
        return found_H
    windows = part_HNW.shape[1]
    ended = None if by is None else by - (not read.closing)
    for head, grid in enumerate(read.grids):
        newest = (token + grid.shift) // grid.stride
        oldest = max(0, -((grid.width - 1 - token - grid.shift) // grid.stride))
        parts = [
            part_HNW[head, window, token - grid.start(window)]
            for window in range(oldest, min(newest, windows - 1) + 1)
            if token - grid.start(window) < grid.width and (ended is None or grid.closes(window) <= ended)
        ]
        found_H[head] = max(parts, default=1.0)
    return found_H


def prefers_slots(gate: HeadGate, grid: WindowGrid, stride: int) -> npt.NDArray[np.bool_]:
    """The phases whose token lies in a slot of more than the average weight, [P].

    Where windows overlap a token lies in several slots, and its best one counts.
    """
    position_P = np.arange(stride)
    best_P = np.zeros(stride)
    for slot, weight in enumerate(gate.mean):
        here_P = (position_P + grid.shift - slot) % grid.stride == 0
        best_P = np.where(here_P, np.maximum(best_P, weight), best_P)
    chosen: npt.NDArray[np.bool_] = best_P > best_P.mean() + 1e-12
    return chosen


def _sums(read: Read) -> _Sums:
    weight_BHNW = read.weight_BHNWC.mean(axis=-1)
    # A first window that begins before token 0 has fewer slots than the others, which are compared here.
    first = max(-(grid.start(0) // grid.stride) for grid in read.grids)
    weight_BHNW = weight_BHNW[:, :, first:]
    safe = np.where(weight_BHNW > 0, weight_BHNW, 1.0)
    entropy_BHN = -(weight_BHNW * np.log(safe)).sum(axis=-1)
    rows, _, windows, _ = weight_BHNW.shape
    return _Sums(
        weight_BHNW.sum(axis=(0, 2)),
        (weight_BHNW**2).sum(axis=(0, 2)),
        entropy_BHN.sum(axis=(0, 2)),
        rows * windows,
    )


def _profile(layer: int, head: int, clusters: Sequence[_Sums], prior_W: Floats | None) -> HeadGate:
    windows = sum(one.windows for one in clusters)
    weight_CW = np.array([one.weight_HW[head] for one in clusters])
    count_CW = np.array([[float(one.windows)] * weight_CW.shape[1] for one in clusters])
    found: Rates = rates(weight_CW, count_CW)
    low_W, high_W = clustered_t(found) if len(clusters) > 1 else (found.rate_R, found.rate_R)
    mean_W, width = found.rate_R, weight_CW.shape[1]
    square = float(np.sum([one.square_HW[head] for one in clusters])) / windows
    total = square - 1 / width  # Σ_s E(a_s²) − 1/W = Σ_s E(a_s − 1/W)², as weights sum to 1
    # What sampling noise adds to the slots' own variance, seen over contexts, is taken off.
    between = float(((mean_W - 1 / width) ** 2).sum() - (found.se**2).sum())
    uniform = np.log(width)
    entropy = float(sum(one.entropy_H[head] for one in clusters)) / windows
    distance = correlation = None
    if prior_W is not None:
        distance = float(np.abs(mean_W - prior_W).sum() / 2)
        if np.ptp(prior_W) > 1e-9 and np.ptp(mean_W) > 1e-9:
            correlation = float(np.corrcoef(mean_W, prior_W)[0, 1])
    return HeadGate(
        layer=layer,
        head=head,
        mean=mean_W,
        low=low_W,
        high=high_W,
        prior=prior_W,
        entropy=entropy / uniform if width > 1 else 1.0,
        entropy_of_mean=float(-(mean_W * np.log(np.where(mean_W > 0, mean_W, 1))).sum() / uniform)
        if width > 1
        else 1.0,
        recurrence=float(np.clip(between / total, 0, 1)) if total > 1e-12 else None,
        prior_distance=distance,
        prior_correlation=correlation,
        windows=windows,
    )
