"""What training does to the gates of window pools: watch them, even them out, move their grids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..compressors.base import AbstractCompressor, AbstractWindowPool
from ..grid import WindowGrid


def compressors_of(model: nn.Module) -> list[AbstractCompressor]:
    """The compressors of a model, layer by layer."""
    return [module for module in model.modules() if isinstance(module, AbstractCompressor)]


@contextmanager
def watched(model: nn.Module) -> Iterator[list[list[Tensor]]]:
    """Collect the gates' mean weight of each slot: per layer, one [KV heads, W] per forward."""
    pools = [pool for pool in compressors_of(model) if isinstance(pool, AbstractWindowPool)]
    tallies: list[list[Tensor]] = [[] for _ in pools]
    try:
        for pool, tally in zip(pools, tallies, strict=True):
            pool.tally = tally
        yield tallies
    finally:
        for pool in pools:
            pool.tally = None


def mean_weights(tally: Sequence[Tensor]) -> Tensor:
    """Mean over forwards of a layer's weights, [KV heads, W]; each head's sum to 1.

    A forward in which a head completes no window says nothing of that head, and holds zeros.
    """
    mass_HW = torch.stack(list(tally)).sum(0)
    return mass_HW / mass_HW.sum(1, keepdim=True).clamp(min=1e-12)


def imbalance(mass_LHW: Sequence[Tensor], grids_LH: Sequence[Sequence[WindowGrid]]) -> Tensor:
    """How unevenly the gates of all heads and layers together weigh the phases.

        m_p = Σ over layers, heads and the slots at phase p of the mean weight, over the sum of all
        imbalance = S · Σ_p (m_p − 1/S)²

    0 where every phase gets the same mass, S − 1 where one gets all. A slot's phase is (slot − shift) mod S.

    Args:
        mass_LHW: mean weights per layer, [KV heads, W].
        grids_LH: the grids of the same layers and heads.
    """
    stride = grids_LH[0][0].stride
    mass_S = torch.zeros(stride, dtype=mass_LHW[0].dtype, device=mass_LHW[0].device)
    for mass_HW, grids_H in zip(mass_LHW, grids_LH, strict=True):
        slot_W = torch.arange(mass_HW.shape[1], device=mass_HW.device)
        for mass_W, grid in zip(mass_HW, grids_H, strict=True):
            mass_S = mass_S.index_add(0, (slot_W - grid.shift) % stride, mass_W)
    share_S = mass_S / mass_S.sum()
    return stride * (share_S - 1 / stride).square().sum()


@contextmanager
def moved(model: nn.Module, by: int) -> Iterator[None]:
    """All grids moved back by so many more tokens, modulo the stride."""
    found = compressors_of(model)
    before = [compressor.grids for compressor in found]
    try:
        for compressor, grids in zip(found, before, strict=True):
            compressor.grids = tuple(_moved(grid, by) for grid in grids)
        yield
    finally:
        for compressor, grids in zip(found, before, strict=True):
            compressor.grids = grids


@contextmanager
def reading_raw(model: nn.Module) -> Iterator[None]:
    """Nothing is compressed: every earlier token is read raw, as by full attention."""
    found = compressors_of(model)
    try:
        for compressor in found:
            compressor.idle = True
        yield
    finally:
        for compressor in found:
            compressor.idle = False


def _moved(grid: WindowGrid, by: int) -> WindowGrid:
    """Whole strides of a shift stay as far as the window is wide enough for them."""
    whole = grid.shift // grid.stride * grid.stride
    shift = whole + (grid.shift + by) % grid.stride
    return replace(grid, shift=shift if shift < grid.width else shift - grid.stride)
