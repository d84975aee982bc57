"""What a head reads from entries, apart from what it reads from uncompressed tokens, in one softmax over both.

    out = Σ_entries p v + Σ_raw p v          p the softmax over entries, uncompressed tokens and sink together

Both parts keep the weights of the common softmax: this is what flows through either branch as it is, and not what the
head would do without the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

from ..models.attention import CompressedAttention, Reads

ENTRIES = "phasescope_entries"
"""Name of the attention function under which a DeepSeek-V4 layer is read in part."""


def has_branches(attention: nn.Module) -> bool:
    """Whether a layer reads entries beside uncompressed tokens, and both can be separated."""
    return isinstance(attention, CompressedAttention) or getattr(attention, "compressor", None) is not None


def is_ours(attention: nn.Module) -> bool:
    """Whether a layer is phasescope's own, whose entries can be replaced at every position."""
    return isinstance(attention, CompressedAttention)


@contextmanager
def entries_alone(attention: nn.Module) -> Iterator[None]:
    """Let one layer put out the entries' part of what it reads, until the context ends."""
    ours = isinstance(attention, CompressedAttention)
    with _reading(attention, partial(_entries_part, attention)) if ours else _latent(attention):
        yield


@contextmanager
def entries_replaced(attention: nn.Module, queries: tuple[int, ...], value_AD: Tensor) -> Iterator[None]:
    """Put one value in place of what some query heads read from entries, at every position of every forward.

    Args:
        attention: a layer of ours.
        queries: query heads.
        value_AD: what stands in its place, before any rotation at the output.
    """
    assert isinstance(attention, CompressedAttention)  # `Ablation` refuses other layers
    layer, given, heads = attention, attention._block, list(queries)

    def block(*args: Any) -> Tensor:
        out_BAQD = given(*args).clone()
        part_BAQD = _entries_part(layer, *args)
        out_BAQD[:, heads] += value_AD.to(out_BAQD.dtype)[:, None] - part_BAQD[:, heads]
        return out_BAQD

    with _reading(attention, block):
        yield


@contextmanager
def _reading(attention: nn.Module, block: Callable[..., Tensor]) -> Iterator[None]:
    """Let a layer read by another function than its own; an instance's attribute hides its class's."""
    attention.__dict__["_block"] = block
    try:
        yield
    finally:
        del attention.__dict__["_block"]


def _entries_part(
    attention: Any,
    query_BAQD: Tensor,
    hidden_BQE: Tensor,
    position_B1Q: Tensor,
    reads: Reads,
    first: int,
) -> Tensor:
    """What a layer's heads read from entries, [B, A, Q, D]."""
    query, key, value, mask = attention.operands(query_BAQD, hidden_BQE, position_B1Q, reads, first)
    value = value.clone()  # with a shared key/value it is the key
    value[:, :, reads.key_BHND.shape[2] :] = 0
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=attention.scaling, enable_gqa=True
    )
    return out[..., : attention.head_dim]


@contextmanager
def _latent(attention: nn.Module) -> Iterator[None]:
    """DeepSeek-V4 through `transformers`' registry of attention functions.

    Its entries stand behind the uncompressed tokens; how many there are, its compressor says.
    """
    compressor: Any = attention.compressor
    config: Any = attention.config
    eager = sys.modules[type(attention).__module__].eager_attention_forward
    counted: list[int] = []

    def count(module: nn.Module, args: Any, out: tuple[Tensor, Any]) -> None:
        counted[:] = [out[0].shape[2]]

    def part(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        if module is attention:
            value = value.clone()  # it is the key
            value[:, :, : value.shape[2] - counted[0]] = 0
        return eager(module, query, key, value, *args, **kwargs)

    AttentionInterface.register(ENTRIES, part)
    AttentionMaskInterface.register(ENTRIES, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    before = config._attn_implementation
    hook = compressor.register_forward_hook(count)
    config._attn_implementation = ENTRIES
    try:
        yield
    finally:
        config._attn_implementation = before
        hook.remove()
