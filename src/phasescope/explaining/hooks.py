"""Where heads are read and replaced: what an attention layer hands to its output projection.

Hooks are registered on the model's own modules and removed when the context ends. Shape suffixes: R rows (questions, or
questions × units), A query heads, D channels of a head, E what a decoder layer is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import UsageError
from .reading import has_branches
from .units import Shape, Where

Edit = tuple[slice, tuple[int, ...], Tensor]
"""Rows, query heads, and what stands in their place, [R or 1, heads, D]."""


@dataclass(frozen=True, slots=True)
class AttentionHook:
    """One attention layer whose heads can be read and replaced.

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

    @property
    def layer(self) -> int:
        """Its number."""
        return self.shape.layer

    def heads(self, x: Tensor) -> Tensor:
        """The projection's input by heads, [R, T, A, D]; a view where possible."""
        return x.reshape(x.shape[0], x.shape[1], self.shape.queries, -1)


def find_attention_hooks(model: nn.Module) -> list[AttentionHook]:
    """The attention layers of a causal language model, in order.

    A layer is known by its output projection: `o_proj` (Llama's family, Qwen3 and ours), or `o_a_proj`
    (DeepSeek-V4, which projects in groups).

    Raises:
        UsageError: if there is none, or their numbers of heads are not known.
    """
    modules = dict(model.named_modules())
    hooks = []
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
        hooks.append(AttentionHook(shape, module, projection, modules[owner[1]], latent))
    if not hooks:
        raise UsageError(
            f"{type(model).__name__} has no attention layer with an o_proj, so no heads can be taken apart; give a "
            "grouped-query model such as Qwen3 or Llama, DeepSeek-V4, or one of phasescope's own"
        )
    return hooks


def _queries(module: nn.Module, projection: nn.Module, channels: int) -> int:
    """How many query heads a layer has: by its own attribute, else by the width of its projection."""
    count = getattr(module, "num_heads", None) or getattr(module, "num_attention_heads", None)
    if isinstance(count, int):
        return count
    width = int(getattr(projection, "in_features", 0))
    if not width or width % channels:
        raise UsageError(
            f"a layer of {channels} channels a head projects {width} channels; its heads cannot be counted"
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
def recording(hooks: Sequence[AttentionHook], *, stop: bool = False) -> Iterator[Tape]:
    """Note what the given layers' heads put out at the last position, and what their decoders were given.

    Args:
        hooks: the layers.
        stop: end the forward at the last of them, and with it the context.
    """
    tape = Tape({}, {})
    last = max(hook.layer for hook in hooks)
    with ExitStack() as stack, suppress(_Stopped):
        for hook in hooks:

            def note(heads_RTAD: Tensor, layer: int = hook.layer) -> None:
                tape.heads[layer] = heads_RTAD[:, -1].clone()
                if stop and layer == last:
                    raise _Stopped

            def arrive(args: tuple[Any, ...], layer: int = hook.layer) -> None:
                tape.stream[layer] = args[0][:, -1:].clone()

            stack.enter_context(watching(hook, note))
            stack.enter_context(_before(hook.decoder, arrive))
        yield tape


def watching(hook: AttentionHook, see: Callable[[Tensor], None]) -> AbstractContextManager[None]:
    """Show a function what a layer's heads put out, [R, T, A, D], in every forward."""
    return _before(hook.projection, lambda args: see(hook.heads(args[0])))


@contextmanager
def editing(
    hooks: Mapping[int, AttentionHook], edits: Mapping[int, Sequence[Edit]], where: Where = "last"
) -> Iterator[None]:
    """Put other values in place of heads' outputs.

    Args:
        hooks: by layer.
        edits: by layer, what is replaced in which rows.
        where: at the last position of each forward, or at every position.
    """
    place = slice(-1, None) if where == "last" else slice(None)
    with ExitStack() as stack:
        for layer, changes in edits.items():

            def replace(
                args: tuple[Any, ...],
                hook: AttentionHook = hooks[layer],
                changes: Sequence[Edit] = changes,
            ) -> tuple[Any, ...]:
                whole = args[0].clone()
                heads_RTAD = hook.heads(whole)
                for rows, queries, value_RAD in changes:
                    heads_RTAD[rows, place, list(queries)] = value_RAD.to(whole.dtype)[:, None]
                return (heads_RTAD.reshape(args[0].shape), *args[1:])

            stack.enter_context(_before(hooks[layer].projection, replace))
        yield


@contextmanager
def beginning_at(hooks: Mapping[int, AttentionHook], layer: int, stream: Tensor) -> Iterator[None]:
    """Skip the layers below one and hand it what it would have been given.

    An instance's own `forward` hides its class's for as long as the context lasts. The layers below take in nothing,
    their caches neither.

    Args:
        hooks: by layer.
        layer: the first that is computed.
        stream: what its decoder is given, [R, 1, E…].
    """
    below = [hook.decoder for number, hook in hooks.items() if number < layer]
    try:
        for module in below:
            module.__dict__["forward"] = lambda *args, **kwargs: stream
        yield
    finally:
        for module in below:
            del module.__dict__["forward"]


@contextmanager
def _before(module: nn.Module, see: Callable[[tuple[Any, ...]], Any]) -> Iterator[None]:
    """Show a function what a module is given; what it returns, if anything, takes its place."""
    handle = module.register_forward_pre_hook(lambda module, args: see(args))
    try:
        yield
    finally:
        handle.remove()
