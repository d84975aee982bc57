"""The seam at which heads are read and replaced: what an attention layer hands to its output projection.

Hooks stand on the model's own modules and are gone when the context ends. Shape suffixes: R rows (questions, or
questions × units), A query heads, D channels of a head, E what a decoder layer is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import UsageError
from .reading import entries_alone, has_branches
from .units import Shape

Edit = tuple[slice, tuple[int, ...], Tensor]
"""Rows, query heads, and what stands in their place, [R or 1, heads, D]."""


@dataclass(frozen=True, slots=True)
class Seam:
    """One attention layer that can be taken apart.

    Attributes:
        shape: its number and its heads.
        attention: the module.
        projection: the module whose input is the heads' outputs, side by side.
        decoder: the layer of the residual stream that holds it.
        latent: whether its single KV head is a tensor that all query heads share as key and value.
    """

    shape: Shape
    attention: nn.Module
    projection: nn.Module
    decoder: nn.Module
    latent: bool


def find_seams(model: nn.Module) -> list[Seam]:
    """The attention layers of a causal language model, in order.

    A layer is known by its output projection: `o_proj` (Llama's family, Qwen3 and ours), or `o_a_proj`
    (DeepSeek-V4, which projects in groups).

    Raises:
        UsageError: if there is none, or their numbers of heads cannot be told.
    """
    modules = dict(model.named_modules())
    seams = []
    for name, module in modules.items():
        projection = getattr(module, "o_a_proj", None) or getattr(module, "o_proj", None)
        channels = getattr(module, "head_dim", None)
        owner = re.match(r"(.*\.(\d+))\.[^.]+$", name)
        if projection is None or channels is None or owner is None:
            continue
        queries = _queries(module, projection, int(channels))
        group = int(getattr(module, "num_key_value_groups", 1))
        plan = getattr(module, "plan", None)
        shape = Shape(int(owner[2]), queries, queries // group, has_branches(module))
        latent = hasattr(module, "o_a_proj") or bool(plan is not None and plan.binding and queries == group)
        seams.append(Seam(shape, module, projection, modules[owner[1]], latent))
    if not seams:
        raise UsageError(
            f"{type(model).__name__} has no attention layer with an o_proj, so no heads can be taken apart; give a "
            "grouped-query model such as Qwen3 or Llama, DeepSeek-V4, or one of phasescope's own"
        )
    return seams


def _queries(module: nn.Module, projection: nn.Module, channels: int) -> int:
    """How many query heads a layer has: by its own word, else by the width of its projection."""
    told = getattr(module, "num_heads", None) or getattr(module, "num_attention_heads", None)
    if isinstance(told, int):
        return told
    width = int(getattr(projection, "in_features", 0))
    if not width or width % channels:
        raise UsageError(
            f"a layer of {channels} channels a head projects {width} channels; its heads cannot be told"
        )
    return width // channels


@dataclass
class Tape:
    """What passed at the last position of one forward.

    Attributes:
        heads: by layer, the heads' outputs [R, A, D].
        stream: by layer, what its decoder was given [R, 1, E…].
    """

    heads: dict[int, Tensor]
    stream: dict[int, Tensor]


class _Stopped(Exception):  # noqa: N818 - no error: a forward that was only needed up to here
    """A forward that has shown what it was run for."""


@contextmanager
def recording(seams: Sequence[Seam], *, stop: bool = False) -> Iterator[Tape]:
    """Note what the given layers' heads put out at the last position, and what their decoders were given.

    Args:
        seams: the layers.
        stop: end the forward at the last of them, by `until_seen`.
    """
    tape = Tape({}, {})
    last = max(seam.shape.layer for seam in seams)
    with ExitStack() as hooks:
        for seam in seams:

            def note(module: nn.Module, args: tuple[Any, ...], seam: Seam = seam) -> None:
                tape.heads[seam.shape.layer] = _heads(args[0], seam)[:, -1].clone()
                if stop and seam.shape.layer == last:
                    raise _Stopped

            def arrive(module: nn.Module, args: tuple[Any, ...], seam: Seam = seam) -> None:
                tape.stream[seam.shape.layer] = args[0][:, -1:].clone()

            hooks.callback(seam.projection.register_forward_pre_hook(note).remove)
            hooks.callback(seam.decoder.register_forward_pre_hook(arrive).remove)
        yield tape


@contextmanager
def until_seen() -> Iterator[None]:
    """Run a forward that a recording stops."""
    try:
        yield
    except _Stopped:
        return


@contextmanager
def editing(seams: Mapping[int, Seam], edits: Mapping[int, Sequence[Edit]]) -> Iterator[None]:
    """Put other values in place of heads' outputs at the last position.

    Args:
        seams: by layer.
        edits: by layer, what is replaced in which rows.
    """
    with ExitStack() as hooks:
        for layer, changes in edits.items():

            def replace(
                module: nn.Module,
                args: tuple[Any, ...],
                seam: Seam = seams[layer],
                changes: Sequence[Edit] = changes,
            ) -> tuple[Any, ...]:
                whole = args[0].clone()
                heads_RTAD = _heads(whole, seam)
                for rows, queries, value in changes:
                    heads_RTAD[rows, -1, list(queries)] = value.to(whole.dtype)
                return (heads_RTAD.reshape(args[0].shape), *args[1:])

            hooks.callback(seams[layer].projection.register_forward_pre_hook(replace).remove)
        yield


@contextmanager
def averaging(seams: Sequence[Seam]) -> Iterator[dict[int, tuple[Tensor, int]]]:
    """Add up what heads put out at all positions: by layer, the sum [A, D] and the number of positions."""
    sums: dict[int, tuple[Tensor, int]] = {}
    with ExitStack() as hooks:
        for seam in seams:

            def add(module: nn.Module, args: tuple[Any, ...], seam: Seam = seam) -> None:
                heads_RTAD = _heads(args[0], seam)
                total_AD, count = heads_RTAD.double().sum((0, 1)), heads_RTAD.shape[0] * heads_RTAD.shape[1]
                before = sums.get(seam.shape.layer)
                sums[seam.shape.layer] = (
                    (total_AD, count) if before is None else (before[0] + total_AD, before[1] + count)
                )

            hooks.callback(seam.projection.register_forward_pre_hook(add).remove)
        yield sums


@contextmanager
def editing_everywhere(seam: Seam, queries: tuple[int, ...], value_AD: Tensor) -> Iterator[None]:
    """Put one value in place of heads' outputs at every position of every forward.

    Args:
        seam: the layer.
        queries: query heads.
        value_AD: what stands in their place.
    """

    def replace(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        whole = args[0].clone()
        heads_RTAD = _heads(whole, seam)
        heads_RTAD[:, :, list(queries)] = value_AD.to(whole.dtype)
        return (heads_RTAD.reshape(args[0].shape), *args[1:])

    hook = seam.projection.register_forward_pre_hook(replace)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def beginning_at(seams: Mapping[int, Seam], layer: int, stream: Tensor) -> Iterator[None]:
    """Skip the layers below one and hand it what it would have been given.

    An instance's own `forward` hides its class's for as long as the context lasts. The layers below take in nothing,
    their caches neither.

    Args:
        seams: by layer.
        layer: the first that is computed.
        stream: what its decoder is given, [R, 1, E…].
    """
    below = [seam.decoder for number, seam in seams.items() if number < layer]
    try:
        for module in below:
            module.__dict__["forward"] = lambda *args, **kwargs: stream
        yield
    finally:
        for module in below:
            del module.__dict__["forward"]


@contextmanager
def reading_entries(seam: Seam) -> Iterator[None]:
    """Let a layer put out only what it reads from entries; the softmax stays that of everything."""
    with entries_alone(seam.attention):
        yield


def _heads(x: Tensor, seam: Seam) -> Tensor:
    """The projection's input by heads, [R, T, A, D]; a view where that can be."""
    return x.reshape(x.shape[0], x.shape[1], seam.shape.queries, -1)
