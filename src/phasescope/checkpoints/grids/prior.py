"""The slot weights of a checkpoint: how its pooling shares a window out over its slots with all content equal.

They are the gate's prior, and say nothing of what is recalled: content can outweigh them, and a phase with much weight
may be recalled worst.

Shape suffixes: W window slots, P phases, C channels, H heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UsageError
from ...grid import WindowGrid
from ..safetensors import Floats, Weights
from .base import Target

NAMES = re.compile(
    r"(?:^|\.)layers\.(\d{1,6})\.(?:.*\.)?"
    r"(?:(?:compressor|pool|keys)\.(?:.*\.)?(?:position_bias|ape|slot_bias)|indexer\.index_kpool_compress_ape)$"
)
FLAT = 0.05
"""Spread, in shares of the uniform weight, below which no phase counts as favoured."""


@dataclass(frozen=True)
class Prior:
    """What the learned position bias of one layer's pooling says, with all content equal.

    Attributes:
        layer: its number.
        tensor: the name of the bias.
        role: `entries` for what is read, `indexer` for what is chosen.
        head: KV head, where each has a bias of its own.
        grid: the windows.
        slots: weight of each slot of a window, summing to 1.
        phases: weight of the tokens of each phase, over all windows that hold them, summing to 1.
        channel_spread: largest less smallest phase weight, in shares of the uniform weight, averaged over channels.
    """

    layer: int
    tensor: str
    role: str
    head: int | None
    grid: WindowGrid
    slots: tuple[float, ...]
    phases: tuple[float, ...]
    channel_spread: float

    @property
    def spread(self) -> float:
        """Largest less smallest phase weight, in shares of the uniform weight 1/S; 0 for a flat prior."""
        return (max(self.phases) - min(self.phases)) * len(self.phases)

    @property
    def favoured(self) -> tuple[int, ...]:
        """Phases above the uniform weight, the heaviest first; none where the spread is below 5 %."""
        if self.spread < FLAT:
            return ()
        order = sorted(range(len(self.phases)), key=lambda phase: (-self.phases[phase], phase))
        return tuple(phase for phase in order if self.phases[phase] * len(self.phases) > 1)

    def describe(self) -> dict[str, Any]:
        """As JSON has it."""
        derived = {"grid": str(self.grid), "spread": self.spread, "favoured": self.favoured}
        return {**vars(self), **derived}


def phase_prior(folder: Path, target: Target) -> tuple[Prior, ...]:
    """The prior of every layer whose pooling has a position bias; none where the weights are not there.

        weight[slot, channel] = softmax over the window's slots of the bias        all content equal
        weight[slot]          = mean over channels
        weight[phase]         = sum over the slots of that phase

    DeepSeek-V4's CSA has a bias [S, 2d] for the two halves of its window of 2S slots: Ca of the window before first,
    then Cb; a token of phase p is in both, one after the other. HCA's is [S, d], GLM5-Next's indexer has [S, d], and
    our own gates have [heads, W, channels], with one channel for a scalar gate.

    Args:
        folder: a checkpoint with `*.safetensors`.
        target: what its config says.

    Raises:
        UsageError: for weights that cannot be read, or a bias that does not fit the grid, in one line.

    Source: `transformers` 5.24, models/deepseek_v4 (`position_bias`; upstream: `ape`) and glm5_next.
    """
    weights = Weights(folder)
    by_layer = {layer.index: layer for layer in target.layers}
    found: list[Prior] = []
    for name in sorted(weights.files, key=_order):
        match = NAMES.search(name)
        layer = by_layer.get(int(match[1])) if match else None
        grids = [fold.grid for fold in layer.folds if fold.bias and fold.grid is not None] if layer else []
        if layer is not None and grids:
            role = "indexer" if "indexer" in name else "entries"
            found += _priors(layer.index, name, role, grids, weights.read(name), weights.files[name])
    return tuple(found)


def overall(priors: Sequence[Prior]) -> Iterator[tuple[Prior, int]]:
    """The mean over layers and heads, for entries and indexer apart and for each grid, with how many it is of."""
    groups: dict[tuple[str, int, int], list[Prior]] = {}
    for one in priors:
        groups.setdefault((one.role, one.grid.width, one.grid.stride), []).append(one)
    for same in groups.values():
        yield (
            replace(
                same[0],
                slots=tuple(np.mean([one.slots for one in same], axis=0).tolist()),
                phases=tuple(np.mean([one.phases for one in same], axis=0).tolist()),
                channel_spread=float(np.mean([one.channel_spread for one in same])),
            ),
            len(same),
        )


def _order(name: str) -> tuple[int, bool, str]:
    """By layer, what is read before what is chosen."""
    match = NAMES.search(name)
    return (int(match[1]) if match else -1, "indexer" in name, name)


def _priors(
    layer: int, name: str, role: str, grids: list[WindowGrid], bias: Floats, file: Path
) -> list[Prior]:
    """One prior per head of a bias [H, W, C]; one in all for a bias of DeepSeek's form."""
    grid, stride = grids[0], grids[0].stride
    if not np.isfinite(bias).all():
        raise UsageError(f"{file}: {name} holds numbers that are not finite; the checkpoint is broken")
    if bias.ndim == 3 and bias.shape[1] == grid.width and bias.shape[2]:
        # Heads may have grids of their own, which differ in shift: phases are named by each one's own grid.
        by_head = grids if len(grids) == len(bias) else [grid] * len(bias)
        return [_prior(layer, name, role, head, by_head[head], bias[head]) for head in range(len(bias))]
    series = grid.width // stride
    if bias.ndim != 2 or bias.shape[0] != stride or bias.shape[1] % series or not bias.size:
        raise UsageError(
            f"{file}: {name} has shape {list(bias.shape)}, which does not fit windows of {grid}; "
            "config and weights are of different checkpoints"
        )
    slots_WC = np.concatenate(np.split(bias, series, axis=1), axis=0)
    return [_prior(layer, name, role, None, grid, slots_WC)]


def _prior(layer: int, name: str, role: str, head: int | None, grid: WindowGrid, bias_WC: Floats) -> Prior:
    weight_WC = np.exp(bias_WC - bias_WC.max(axis=0))
    weight_WC /= weight_WC.sum(axis=0)
    phase_W = np.arange(grid.width) % grid.stride  # a window starts at phase 0, whatever its shift
    phase_PC = np.stack([weight_WC[phase_W == phase].sum(axis=0) for phase in range(grid.stride)])
    return Prior(
        layer=layer,
        tensor=name,
        role=role,
        head=head,
        grid=grid,
        slots=tuple(weight_WC.mean(axis=1).tolist()),
        phases=tuple(phase_PC.mean(axis=1).tolist()),
        channel_spread=float(np.mean(phase_PC.max(axis=0) - phase_PC.min(axis=0)) * grid.stride),
    )
