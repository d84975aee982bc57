"""Attention over compressed entries and raw tokens in one softmax, on Qwen3's own attention weights.

Shape suffixes as in `compressors.base`; Q query position, A query heads, K everything that is read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import Cache
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding, rotate_half

from ..catalog import COMPRESSORS
from ..compressors import AbstractCompressor, Entries
from .config import CompressedQwen3Config


class CompressedAttention(Qwen3Attention):
    """Qwen3 attention that reads visible entries and the raw set of each query in one softmax.

        entry j is visible at q            iff closes_j <= q
        token t is in the raw set of q     iff t <= q and (no visible entry covers it, or t > q − tail)

    No token is read twice (but for a tail window), W = S = 1 is full attention, and the newest tokens are
    never lost. This is the plain form: all T tokens stay in the cache, and scores are dense.

    Source: arXiv 2609.36322.
    Differs: the local context beside the entries is not spelled out there; see the two rules above.
    """

    def __init__(self, config: CompressedQwen3Config, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        plan = config.plan
        assert plan is not None  # the model builds this layer only where there is a compression
        grids = plan.grids(
            config.num_hidden_layers, config.num_key_value_heads or config.num_attention_heads
        )[layer_idx]
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
        """Attend from the given tokens to everything read so far; the cache keeps raw keys and states."""
        batch, new, _ = hidden_states.shape
        shape = (batch, new, -1, self.head_dim)
        query_BAQD = self.q_norm(self.q_proj(hidden_states).view(shape)).transpose(1, 2)
        key_BHTD = self.k_norm(self.k_proj(hidden_states).view(shape)).transpose(1, 2)
        value_BHTD = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        state_BHTG = self.compressor.state_BHTG(hidden_states)
        if cache is not None:
            payload_BHTC = torch.cat([key_BHTD, state_BHTG], dim=-1)
            payload_BHTC, value_BHTD = cache.update(payload_BHTC, value_BHTD, self.layer_idx)
            key_BHTD, state_BHTG = payload_BHTC.split([self.head_dim, state_BHTG.shape[-1]], dim=-1)
        cos, sin = position_embeddings
        query_BAQD = rotate(query_BAQD, cos[:, None], sin[:, None])
        entries = self.compressor.entries(key_BHTD, value_BHTD, state_BHTG)
        key_BHKD, value_BHKD = self._read(entries, key_BHTD, value_BHTD)
        mask_HQK = visible(entries, new, self.tail)
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

    def _read(self, entries: Entries, key_BHTD: Tensor, value_BHTD: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys and values of all entries, then of all raw tokens."""
        token_T = torch.arange(key_BHTD.shape[2], device=key_BHTD.device)
        position_HK = torch.cat([entries.position_HN, token_T.expand(key_BHTD.shape[1], -1)], dim=1)
        cos_HKD, sin_HKD = self.rotary(key_BHTD, position_HK)
        key_BHKD = rotate(torch.cat([entries.key_BHND, key_BHTD], dim=2), cos_HKD, sin_HKD)
        return key_BHKD, torch.cat([entries.value_BHND, value_BHTD], dim=2)

    def _repeat(self, x_BHKD: Tensor) -> Tensor:
        return x_BHKD.repeat_interleave(self.num_key_value_groups, dim=1)


def rotate(x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """Rotary embedding of keys or queries, in Qwen3's half-split layout."""
    return x_BHTD * cos_TD + rotate_half(x_BHTD) * sin_TD


def visible(entries: Entries, queries: int, tail: int) -> Tensor:
    """Which entries and which raw tokens each of the last `queries` tokens reads, [H, Q, N + T].

    Where all heads share one grid the result has a single head that broadcasts.
    """
    closes_HN, covered_HT = entries.closes_HN, entries.covered_HT
    if bool((covered_HT == covered_HT[:1]).all()):
        closes_HN, covered_HT = closes_HN[:1], covered_HT[:1]
    token_T = torch.arange(covered_HT.shape[1], device=covered_HT.device)
    query_Q1 = token_T[len(token_T) - queries :, None]
    entry_HQN = closes_HN[:, None] <= query_Q1
    raw_HQT = (token_T <= query_Q1) & ((covered_HT[:, None] > query_Q1) | (token_T > query_Q1 - tail))
    return torch.cat([entry_HQN, raw_HQT], dim=-1)
