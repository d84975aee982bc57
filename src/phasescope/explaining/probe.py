"""Reads gate weights out of a running model, and rolls the learned bias of its gates over their slots.

Suffixes as in `compressors.base`; S stride.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..compressors.base import AbstractWindowPool
from ..compressors.series import AbstractSeries
from ..grid import WindowGrid
from .gates import Floats, Read
from .hooks import Seam


@contextmanager
def gates(seams: Sequence[Seam]) -> Iterator[Callable[[], list[Read]]]:
    """Note the gates' weights in the forwards that follow.

    Yields:
        a function that returns what was seen in the last forward, layer by layer.
    """
    seen: dict[int, Read] = {}
    with ExitStack() as hooks:
        for seam in seams:
            compressor = getattr(seam.attention, "compressor", None)
            if isinstance(compressor, AbstractWindowPool):
                hooks.enter_context(_pool(seam, compressor, seen))
            elif (series := _series(compressor)) is not None:
                hooks.enter_context(_pooled_series(seam, series, seen))
        yield lambda: [seen[layer] for layer in sorted(seen)]


@contextmanager
def _pool(seam: Seam, compressor: AbstractWindowPool, seen: dict[int, Read]) -> Iterator[None]:
    """Our window pools: their own method gives the weights."""
    given = compressor.weights_BHNWC

    def weights(state_BHNWG: Tensor, real_HNW: Tensor) -> Tensor:
        weight_BHNWC = given(state_BHNWG, real_HNW)
        raw = int(getattr(seam.attention.plan, "tail", 0))
        whole = weight_BHNWC
        if len(set(compressor.grids)) > 1:  # a shifted grid may complete one window less
            whole = weight_BHNWC[:, :, :-1]
        seen[seam.shape.layer] = Read(seam.shape.layer, compressor.grids, _numpy(whole), raw)
        return weight_BHNWC

    compressor.__dict__["weights_BHNWC"] = weights
    try:
        yield
    finally:
        del compressor.__dict__["weights_BHNWC"]


def _series(compressor: Any) -> Any:
    """The pooled series of a DeepSeek-V4 compressor, ours or of `transformers`; None for anything else."""
    if isinstance(compressor, AbstractSeries):
        return compressor.pool
    if isinstance(compressor, nn.Module) and all(
        hasattr(compressor, n) for n in ("gate_proj", "position_bias")
    ):
        return compressor
    return None


def _series_shape(pool: Any) -> tuple[int, int]:
    """Stride, and how many series stand side by side: 1 for HCA, 2 for CSA."""
    stride, channels = pool.position_bias.shape
    own = pool.kv_norm.weight.shape[0]
    return int(stride), int(channels // own)


def gate_grids(compressor: Any) -> tuple[WindowGrid, ...]:
    """The grids of a compressor, ours or DeepSeek-V4's; empty for anything else."""
    if (grids := getattr(compressor, "grids", None)) is not None:
        return tuple(grids)
    pool = _series(compressor)
    return () if pool is None else (series_grid(*_series_shape(pool)),)


def series_grid(stride: int, series: int) -> WindowGrid:
    """The grid of a pooled series: two series overlap by a stride."""
    return WindowGrid(series * stride, stride, (series - 1) * stride)


def series_weights_BNWC(gate_BTG: Tensor, bias_SG: Tensor, series: int) -> Tensor:
    """The weights of pooled series: one softmax per channel over the slots of both series.

    The left half of the first window does not exist and has weight 0.
    """
    stride = bias_SG.shape[0]
    windows = gate_BTG.shape[1] // stride
    gate_BNSG = gate_BTG[:, : windows * stride].unflatten(1, (windows, stride)) + bias_SG
    if series == 2:
        before, own = gate_BNSG.chunk(2, dim=-1)
        none = torch.full_like(before[:, :1], -torch.inf)
        gate_BNSG = torch.cat([torch.cat([none, before[:, :-1]], dim=1), own], dim=2)
    return gate_BNSG.softmax(dim=2, dtype=torch.float32)


@contextmanager
def _pooled_series(seam: Seam, pool: Any, seen: dict[int, Read]) -> Iterator[None]:
    """DeepSeek-V4's series: weights follow from the gate's projection and the position bias."""
    stride, series = _series_shape(pool)
    config: Any = seam.attention.config
    plan = getattr(seam.attention, "plan", None)
    raw = int(plan.tail if plan is not None else config.sliding_window)

    def note(module: nn.Module, args: Any, gate_BTG: Tensor) -> None:
        weight_BNWC = series_weights_BNWC(gate_BTG, pool.position_bias, series)
        grids = (series_grid(stride, series),)
        seen[seam.shape.layer] = Read(seam.shape.layer, grids, _numpy(weight_BNWC[:, None]), raw)

    hook = pool.gate_proj.register_forward_hook(note)
    try:
        yield
    finally:
        hook.remove()


def priors(seams: Sequence[Seam]) -> dict[int, Floats]:
    """By layer, what the learned bias alone would give each slot: its softmax, [H, W]; layers without one lack."""
    found = {}
    for seam in seams:
        if (bias_HWC := _bias_HWC(seam)) is not None:
            found[seam.shape.layer] = _numpy(bias_HWC.softmax(dim=1).mean(dim=-1))
    return found


def _bias_HWC(seam: Seam) -> Tensor | None:
    """The bias of every slot of a window."""
    compressor = getattr(seam.attention, "compressor", None)
    if isinstance(compressor, AbstractWindowPool):
        return None if compressor.gate is None else compressor.slot_bias.detach()
    pool = _series(compressor)
    if pool is None:
        return None
    _, series = _series_shape(pool)
    # Slots of a window are those of the first series, then those of the second.
    return torch.cat(pool.position_bias.detach().chunk(series, dim=-1), dim=0)[None]


def has_bias(seams: Sequence[Seam]) -> bool:
    """Whether any gate has a bias per slot that could be rolled."""
    return any(_bias_HWC(seam) is not None for seam in seams)


@contextmanager
def rolled(seams: Sequence[Seam], slots: int) -> Iterator[None]:
    """Roll the bias of every gate over its slots: slot s gets what slot s − `slots` had.

    The weights are put back, bit by bit, when the context ends.
    """
    kept: list[tuple[nn.Parameter, Tensor]] = []
    try:
        with torch.no_grad():
            for seam in seams:
                compressor: Any = getattr(seam.attention, "compressor", None)
                if isinstance(compressor, AbstractWindowPool):
                    if compressor.gate is not None:
                        kept.append((compressor.slot_bias, compressor.slot_bias.detach().clone()))
                        compressor.slot_bias.copy_(compressor.slot_bias.roll(slots, dims=1))
                elif (pool := _series(compressor)) is not None:
                    _, series = _series_shape(pool)
                    kept.append((pool.position_bias, pool.position_bias.detach().clone()))
                    slots_WC = torch.cat(pool.position_bias.chunk(series, dim=-1), dim=0).roll(slots, dims=0)
                    pool.position_bias.copy_(torch.cat(slots_WC.chunk(series, dim=0), dim=-1))
        yield
    finally:
        with torch.no_grad():
            for parameter, value in kept:
                parameter.copy_(value)


def _numpy(x: Tensor) -> Floats:
    values: Floats = x.detach().to("cpu", torch.float64).numpy()
    return values


def strides(reads: Sequence[Read]) -> int:
    """The modulus of phases that the gates of all layers have together."""
    return int(np.lcm.reduce([grid.stride for read in reads for grid in read.grids])) if reads else 1
