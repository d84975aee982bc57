"""Reads gate weights out of a running model, and rolls the learned bias of its gates over their slots.

Suffixes as in `compressors.base`; S stride.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..compressors.base import AbstractWindowPool
from ..compressors.series import AbstractSeries
from ..grid import WindowGrid
from .gates import Floats, Read
from .hooks import AttentionHook


@contextmanager
def gates(hooks: Sequence[AttentionHook]) -> Iterator[Callable[[], list[Read]]]:
    """Note the gates' weights in the forwards that follow.

    Yields:
        a function that returns what was seen in the last forward, layer by layer.
    """
    seen: dict[int, Read] = {}
    with ExitStack() as stack:
        for hook in hooks:
            compressor = getattr(hook.attention, "compressor", None)
            if isinstance(compressor, AbstractWindowPool):
                stack.enter_context(_pool(hook, compressor, seen))
            elif (series := _series(compressor)) is not None:
                stack.enter_context(_pooled_series(hook, series, seen))
        yield lambda: [seen[layer] for layer in sorted(seen)]


@contextmanager
def _pool(hook: AttentionHook, compressor: AbstractWindowPool, seen: dict[int, Read]) -> Iterator[None]:
    """Our window pools: their own method gives the weights."""
    given = compressor.weights_BHNWC

    def weights(state_BHNWG: Tensor, real_HNW: Tensor) -> Tensor:
        weight_BHNWC = given(state_BHNWG, real_HNW)
        raw = uncompressed(hook.attention)
        whole = weight_BHNWC
        if len(set(compressor.grids)) > 1:  # a shifted grid may complete one window less
            whole = weight_BHNWC[:, :, :-1]
        seen[hook.layer] = Read(
            hook.layer, compressor.grids, _numpy(whole), raw, reads_closing(hook.attention)
        )
        return weight_BHNWC

    compressor.__dict__["weights_BHNWC"] = weights
    try:
        yield
    finally:
        del compressor.__dict__["weights_BHNWC"]


def uncompressed(attention: Any) -> int:
    """How many of the last tokens every query of a layer reads uncompressed."""
    plan = getattr(attention, "plan", None)
    return int(plan.tail if plan is not None else attention.config.sliding_window)


def reads_closing(attention: Any) -> bool:
    """Whether the token that closes a window reads its entry, and not only the next one."""
    plan = getattr(attention, "plan", None)
    return plan is None or bool(plan.closing)


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
def _pooled_series(hook: AttentionHook, pool: Any, seen: dict[int, Read]) -> Iterator[None]:
    """DeepSeek-V4's series: weights follow from the gate's projection and the position bias."""
    stride, series = _series_shape(pool)
    raw = uncompressed(hook.attention)

    def note(module: nn.Module, args: Any, gate_BTG: Tensor) -> None:
        weight_BNWC = series_weights_BNWC(gate_BTG, pool.position_bias, series)
        grids = (series_grid(stride, series),)
        seen[hook.layer] = Read(
            hook.layer, grids, _numpy(weight_BNWC[:, None]), raw, reads_closing(hook.attention)
        )

    handle = pool.gate_proj.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def priors(hooks: Sequence[AttentionHook]) -> dict[int, Floats]:
    """By layer, what the learned bias alone would give each slot: its softmax, [H, W]; layers without one lack."""
    return {
        hook.layer: _numpy(bias.slots_HWC().softmax(dim=1).mean(dim=-1))
        for hook in hooks
        if (bias := _bias(hook)) is not None
    }


@dataclass(frozen=True)
class _Bias:
    """The learned bias of a layer's gates, per slot of a window.

    Attributes:
        parameter: [H, W, C]; of pooled series [S, series × channels], whose windows hold the slots of the first series,
            then those of the second.
        series: how many series stand side by side; None for a window pool.
    """

    parameter: nn.Parameter
    series: int | None

    def slots_HWC(self) -> Tensor:
        """A copy of the bias by head and slot."""
        value = self.parameter.detach()
        if self.series is None:
            return value.clone()
        return torch.cat(value.chunk(self.series, dim=-1), dim=0)[None]

    def put(self, slots_HWC: Tensor) -> None:
        """Set the bias."""
        if self.series is not None:
            slots_HWC = torch.cat(slots_HWC[0].chunk(self.series, dim=0), dim=-1)
        self.parameter.copy_(slots_HWC)


def _bias(hook: AttentionHook) -> _Bias | None:
    """The bias of a layer's gates; None without one."""
    compressor: Any = getattr(hook.attention, "compressor", None)
    if isinstance(compressor, AbstractWindowPool):
        return None if compressor.gate is None else _Bias(compressor.slot_bias, None)
    pool = _series(compressor)
    return None if pool is None else _Bias(pool.position_bias, _series_shape(pool)[1])


def has_bias(hooks: Sequence[AttentionHook]) -> bool:
    """Whether any gate has a bias per slot that could be rolled."""
    return any(_bias(hook) is not None for hook in hooks)


@contextmanager
def rolled(hooks: Sequence[AttentionHook], slots: int) -> Iterator[None]:
    """Roll the bias of every gate over its slots: slot s gets what slot s − `slots` had.

    The weights are restored, bit by bit, when the context ends.
    """
    biases = [bias for hook in hooks if (bias := _bias(hook)) is not None]
    kept = [bias.slots_HWC() for bias in biases]
    try:
        with torch.no_grad():
            for bias, slots_HWC in zip(biases, kept, strict=True):
                bias.put(slots_HWC.roll(slots, dims=1))
        yield
    finally:
        with torch.no_grad():
            for bias, slots_HWC in zip(biases, kept, strict=True):
                bias.put(slots_HWC)


def _numpy(x: Tensor) -> Floats:
    values: Floats = x.detach().to("cpu", torch.float64).numpy()
    return values
