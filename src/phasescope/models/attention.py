"""Attention over compressed entries and raw tokens in one softmax, on Qwen3's own attention weights.

Shape suffixes as in `compressors.base`; Q query position, A query heads, K everything that is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import Cache
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding, rotate_half

from ..catalog import COMPRESSORS
from ..compressors import AbstractCompressor, Entries
from ..compressors.base import moved
from .cache import EntryLayer, entry_layer
from .config import CompressedQwen3Config


class CompressedAttention(Qwen3Attention):
    """Qwen3 attention that reads visible entries and the raw set of each query in one softmax.

        entry j is visible at q            iff closes_j <= q
        token t is in the raw set of q     iff t <= q and (no visible entry covers it, or t > q − tail)

    No token is read twice (but for a tail window), W = S = 1 is full attention, and the newest tokens are
    never lost. The cache keeps entries and the raw tokens that a later query may still need.

    Source: arXiv 2609.36322.
    Differs: the local context beside the entries is not spelled out there; see the two rules above.
    """

    def __init__(self, config: CompressedQwen3Config, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        plan = config.plan
        assert plan is not None  # the model builds this layer only where there is a compression
        heads = config.num_key_value_heads or config.num_attention_heads
        grids = plan.grids(config.num_hidden_layers, heads)[layer_idx]
        self.tail = plan.tail
        self.compressor: AbstractCompressor = COMPRESSORS.load(plan.compressor)(
            grids, config.hidden_size, self.head_dim
        )
        self.rotary = Qwen3RotaryEmbedding(config)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend from the given tokens to everything read so far."""
        batch, new, _ = hidden_states.shape
        shape = (batch, new, -1, self.head_dim)
        query_BAQD = self.q_norm(self.q_proj(hidden_states).view(shape)).transpose(1, 2)
        key_BHTD = self.k_norm(self.k_proj(hidden_states).view(shape)).transpose(1, 2)
        value_BHTD = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        state_BHTG = self.compressor.state_BHTG(hidden_states)
        layer = None if cache is None else entry_layer(cache, self.layer_idx)
        payload_BHTP = torch.cat([key_BHTD, value_BHTD, state_BHTG], dim=-1)
        key_BHKD, value_BHKD, mask_HQK = self._read(payload_BHTP, layer)
        cos, sin = position_embeddings
        query_BAQD = rotate(query_BAQD, cos[:, None], sin[:, None])
        if len(mask_HQK) > 1:
            mask_HQK = mask_HQK.repeat_interleave(self.num_key_value_groups, dim=0)
        out_BAQD = scaled_dot_product_attention(
            query_BAQD,
            self._repeat(key_BHKD),
            self._repeat(value_BHKD),
            attn_mask=mask_HQK[None],
            dropout_p=self.attention_dropout if self.training else 0.0,
            scale=self.scaling,
        )
        return self.o_proj(out_BAQD.transpose(1, 2).reshape(batch, new, -1)), None

    def _read(self, payload_BHTP: Tensor, layer: EntryLayer | None) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated keys and values of all entries, then of the raw tokens still needed, and who sees them."""
        new, seen, start = payload_BHTP.shape[2], 0, 0
        if layer is not None:
            seen, start = layer.seen, layer.start
            payload_BHTP, _ = layer.update(payload_BHTP)
        sizes = [self.head_dim, self.head_dim, payload_BHTP.shape[-1] - 2 * self.head_dim]
        key_BHTD, value_BHTD, state_BHTG = payload_BHTP.split(sizes, dim=-1)
        entries = self.compressor.entries(key_BHTD, value_BHTD, state_BHTG).since(seen - start)
        entry_key_BHND = rotate(entries.key_BHND, *self.rotary(key_BHTD, entries.position_HN + start))
        entry_value_BHND, closes_HN = entries.value_BHND, moved(entries.closes_HN, start)
        if layer is not None:
            folded = layer.fold(entry_key_BHND, entry_value_BHND, closes_HN)
            entry_key_BHND, entry_value_BHND, closes_HN = folded
            needed = self.compressor.resumes(self.compressor.settled(layer.seen))
            layer.drop(max(0, min(needed, layer.seen + 1 - self.tail)))
        settled = self.compressor.settled(seen)
        first = max(start, min(settled, seen + 1 - self.tail))
        token_T = torch.arange(first, seen + new, device=payload_BHTP.device)
        raw_key_BHTD = rotate(key_BHTD[:, :, first - start :], *self.rotary(key_BHTD, token_T[None]))
        covered_HT = moved(entries.covered_HT, start)[:, first - start :].masked_fill(token_T < settled, -1)
        return (
            torch.cat([entry_key_BHND, raw_key_BHTD], dim=2),
            torch.cat([entry_value_BHND, value_BHTD[:, :, first - start :]], dim=2),
            visible(replace(entries, closes_HN=closes_HN, covered_HT=covered_HT), new, self.tail, first),
        )

    def _repeat(self, x_BHKD: Tensor) -> Tensor:
        return x_BHKD.repeat_interleave(self.num_key_value_groups, dim=1)


def rotate(x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """Rotary embedding of keys or queries, in Qwen3's half-split layout."""
    return x_BHTD * cos_TD + rotate_half(x_BHTD) * sin_TD


def visible(entries: Entries, queries: int, tail: int, first: int = 0) -> Tensor:
    """Which entries and which raw tokens each of the last `queries` tokens reads, [H, Q, N + T].

    The raw tokens begin at position `first`. Where all heads share one grid the result has a single head
    that broadcasts.
    """
    closes_HN, covered_HT = entries.closes_HN, entries.covered_HT
    if bool((covered_HT == covered_HT[:1]).all()) and bool((closes_HN == closes_HN[:1]).all()):
        closes_HN, covered_HT = closes_HN[:1], covered_HT[:1]
    token_T = torch.arange(first, first + covered_HT.shape[1], device=covered_HT.device)
    query_Q1 = token_T[len(token_T) - queries :, None]
    entry_HQN = closes_HN[:, None] <= query_Q1
    raw_HQT = (token_T <= query_Q1) & ((covered_HT[:, None] > query_Q1) | (token_T > query_Q1 - tail))
    return torch.cat([entry_HQN, raw_HQT], dim=-1)
