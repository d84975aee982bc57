"""One cache, read on from more than once, in as little memory as its kind allows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer


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
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
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
