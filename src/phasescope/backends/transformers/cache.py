"""One cache, read on from more than once, in as little memory as its kind allows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer


class ReservedLayer(DynamicLayer):
    """A layer that appends into memory reserved beforehand, so that reading in chunks never copies it.

    Growing by concatenation needs old and new side by side, and leaves holes of every earlier size behind.

    Args:
        layer: what has been read so far.
        tokens: that there is to be room for; beyond them it grows as any other.
    """

    def __init__(self, layer: DynamicLayer, tokens: int) -> None:
        super().__init__()
        self.device, self.is_initialized, held = layer.device, True, layer.get_seq_length()
        self._room: list[Tensor] | None = []
        for name in ("keys", "values"):
            read = getattr(layer, name)
            room = read.new_empty((*read.shape[:2], max(tokens, held), read.shape[-1]))
            room[:, :, :held] = read
            setattr(self, name, room[:, :, :held])
            setattr(layer, name, None)
            self._room.append(room)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append, in place while there is room."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._room is None or end > self._room[0].shape[-2]:
            self._room = None
            return super().update(key_states, value_states, *args, **kwargs)
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start:end] = states
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Any) -> None:
        """Other rows are in memory of their own, with nothing reserved."""
        self._room = None
        super().reorder_cache(beam_idx)


def reserve(cache: Any, tokens: int) -> None:
    """Give the layers that only append room for so many tokens."""
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = ReservedLayer(layer, tokens)


def expanded(cache: Any, rows_B: Tensor) -> Any:
    """A cache of its own whose row i is row rows_B[i] of the given one, which stays as it was.

    Layers are copied without their tensors, and reordering then makes tensors of the new size: at no time
    is there a copy of the whole beside the result.
    """
    known = {id(tensor): tensor for layer in cache.layers for tensor in _tensors(vars(layer))}
    own = copy.deepcopy(cache, known)
    own.reorder_cache(rows_B)
    return own


@contextmanager
def branch(cache: Any) -> Iterator[Any]:
    """A cache to read on from; afterwards the given one is as it was.

    Layers that do nothing but append are cropped back, at the cost of no copy; for others (sliding windows,
    folded entries, states that are overwritten) the branch is a whole copy.
    """
    if any(type(layer) not in (DynamicLayer, ReservedLayer) for layer in cache.layers):
        yield copy.deepcopy(cache)
        return
    before = cache.get_seq_length()
    yield cache
    cache.crop(before - cache.get_seq_length())


def _tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def cache_bytes(cache: Any) -> int:
    """Bytes of all tensors that a cache holds."""
    held = {id(tensor): tensor for layer in cache.layers for tensor in _tensors(vars(layer))}
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def same_rows(rows_B: Tensor, rows: int) -> bool:
    """Whether reordering by these rows would change nothing."""
    return len(rows_B) == rows and bool((rows_B == torch.arange(rows, device=rows_B.device)).all())
