"""What prefill, decoding and training cost at least: FLOPs and bytes counted from shapes and the grid.

A multiplication and an addition are two FLOPs; norms, rotary embedding and softmax are left out on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.builders.deepseek import Layer

from phasescope.grid import WindowGrid

FLOAT = 4
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """Sizes of a Qwen3."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int

    @classmethod
    def of(cls, config: Any) -> Backbone:
        """From its configuration."""
        return cls(
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.intermediate_size,
            config.vocab_size,
        )


QWEN3_06B = Backbone(28, 1024, 16, 8, 128, 3072, 151936)


@dataclass(frozen=True, slots=True)
class Reads:
    """What the queries of a prefill read, on average."""

    entries: float
    raw: float


def reads(grid: WindowGrid, tokens: int, tail: int = 0, topk: int | None = None) -> Reads:
    """Mean number of entries (at most `topk`) and raw tokens of the queries 0 to tokens − 1.

    The query at q reads entries whose window closed by then, and tokens behind the last of these windows or
    among the last `tail`. Windows without gaps are taken for granted.
    """
    closed = np.array([grid.closed(query + 1) for query in range(tokens)])
    read = closed if topk is None else np.minimum(closed, topk)
    last = np.where(closed > 0, grid.closes(0) + (closed - 1) * grid.stride, -1)
    query = np.arange(tokens)
    raw = np.maximum(query - last, np.minimum(query + 1, tail))
    return Reads(float(read.mean()), float(raw.mean()))


def causal(tokens: int) -> Reads:
    """Full attention reads every token up to the query."""
    return Reads(0.0, (tokens + 1) / 2)


def prefill_flops(shape: Backbone, tokens: int, grid: WindowGrid | None = None, logits: int = 1) -> float:
    """Projections, MLP, attention and the language-model head; with a grid also a scalar gate and pooling."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    per_token = 2 * shape.hidden * (2 * queries + 2 * keys + 3 * shape.mlp)
    read = causal(tokens) if grid is None else reads(grid, tokens)
    pooling = 0
    if grid is not None:
        per_token += 2 * shape.hidden * shape.kv_heads
        pooling = grid.closed(tokens) * grid.width * 2 * 2 * keys
    attention = 4 * queries * (read.entries + read.raw)
    head = 2 * logits * shape.hidden * shape.vocabulary
    return shape.layers * (tokens * (per_token + attention) + pooling) + head


def prefill_bound(shape: Backbone, tokens: int, grid: WindowGrid) -> float:
    """FLOPs with a compressed cache over FLOPs of full attention."""
    return prefill_flops(shape, tokens, grid) / prefill_flops(shape, tokens)


def training_bound(shape: Backbone, tokens: int, grid: WindowGrid) -> float:
    """Tokens per second over plain Qwen3's if FLOPs were all: forward and backward cost the same multiple."""
    return prefill_flops(shape, tokens, logits=tokens) / prefill_flops(shape, tokens, grid, logits=tokens)


def csa_flops(layer: Layer, tokens: int, dense: bool) -> float:
    """One CSA layer: every pair of query and key as `transformers` computes it (`dense`), or what is read."""
    grid = WindowGrid(**layer.grid)
    entries = grid.closed(tokens)
    compared = float(entries) if dense else reads(grid, tokens).entries
    read = Reads(entries, tokens) if dense else reads(grid, tokens, layer.window, layer.topk)
    heads, index = layer.heads * layer.channels, layer.index_heads * layer.index_channels
    series = 2 * 2 * (layer.channels + layer.index_channels)
    per_token = 2 * layer.hidden * (2 * heads + layer.channels + index + layer.index_heads + series)
    pooling = entries * grid.width * 2 * (layer.channels + layer.index_channels)
    attention = 4 * heads * (read.entries + read.raw) + 2 * index * compared
    return tokens * (per_token + attention) + pooling


def cache_bytes(shape: Backbone, tokens: int, grid: WindowGrid | None = None) -> int:
    """Keys and values of all tokens; with a grid those of its entries and of the raw set."""
    kept = tokens
    if grid is not None:
        entries = grid.closed(tokens)
        kept = entries + (tokens - 1 - grid.closes(entries - 1) if entries else tokens)
    return shape.layers * kept * 2 * shape.kv_heads * shape.head_dim * FLOAT


def csa_cache_bytes(layer: Layer, tokens: int) -> int:
    """Entries with their index keys, the raw tokens of the window that the next query still reads, and states.

    A state holds two projections per series; of the window before the unfinished one only one series is needed.
    """
    channels = layer.channels + layer.index_channels
    entries = tokens // layer.stride * channels
    raw = min(tokens, layer.window - 1) * layer.channels
    states = (tokens % layer.stride) * 2 * 2 * channels + min(tokens, layer.stride) * 2 * channels
    return (entries + raw + states) * FLOAT


def exponent(by_tokens: Mapping[int, float], sizes: Sequence[int]) -> float | None:
    """Slope of log value on log tokens over the sizes that were measured; none below two of them."""
    known = [size for size in sizes if by_tokens.get(size, 0) > 0]
    if len(known) < 2:
        return None
    return float(np.polyfit(np.log(known), np.log([by_tokens[size] for size in known]), 1)[0])
