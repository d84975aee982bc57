"""Attention over compressed entries and uncompressed tokens in one softmax, on Qwen3's own attention weights.

Shape suffixes as in `compressors.base`; Q query position, A query heads, K everything that is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers import Cache
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3RotaryEmbedding, rotate_half

from ..catalog import COMPRESSORS
from ..compressors import AbstractCompressor
from ..errors import UsageError
from .cache import HIDDEN, EntryLayer, entry_layer
from .config import CompressedQwen3Config

BLOCK = 256
"""Queries that are read together: no array is larger than this many rows of entries and local tokens."""
STRIP = 32
"""The same for training on a CPU, where starting an operation costs little: a short block leaves out most
of the tokens that none of its queries can see, and is 2.5 times as fast at 256 tokens."""


class CompressedAttention(Qwen3Attention):
    """Qwen3 attention that reads visible entries and uncompressed tokens in one softmax.

        entry j is visible at q              iff last_token_j + delay <= q
        q reads token t uncompressed         iff t <= q and (q < visible_from_t + delay, or t > q − tail)

    The delay is 0 where the token that closes a window reads its entry (`Compression.visibility`), and 1 where the next
    one is the first to do so. No token is read twice (but for a sliding window of `tail` tokens), W = S = 1 is full
    attention, and the newest tokens are never lost. Queries are read in blocks, so that memory grows with the number
    of tokens and not with its square; the cache keeps entries and the uncompressed tokens that a later query may still
    need.

    Beside grid and gate a `Compression` says: with `binding` one tensor is key and value, rotated as a key and
    turned back by the query's position at the output; `rotary` is the share of each head's channels, the last
    ones, that is rotated; a `sink` is one more logit per query head, with nothing to read.

    Source: arXiv 2609.36322; shared key/value, rotation at the output and sink: DeepSeek-V4.
    Differs: the local context beside the entries is not spelled out there; see the two rules above. Rotated
        channels are halved as in Qwen3, where DeepSeek-V4 interleaves them: the same up to their order.
    """

    def __init__(self, config: CompressedQwen3Config, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        plan = config.plan
        assert plan is not None  # the model builds this layer only where there is a compression
        heads = config.num_key_value_heads or config.num_attention_heads
        grids = plan.grids(config.num_hidden_layers, heads)[layer_idx]
        self.plan = plan
        self.delay = int(not plan.closing)
        self.compressor: AbstractCompressor = COMPRESSORS.load(plan.compressor)(
            grids, config.hidden_size, self.head_dim, **plan.settings
        )
        if plan.binding:
            del self.v_proj
        self.sinks = nn.Parameter(torch.zeros(config.num_attention_heads)) if plan.sink else None
        self.rotary = Qwen3RotaryEmbedding(_rotated_config(config, plan.rotary))

    def initial(self) -> dict[str, Tensor]:
        """As in `AbstractCompressor`."""
        return {} if self.sinks is None else {"sinks": torch.zeros_like(self.sinks)}

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        *,
        pads: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend from the given tokens to everything read so far.

        Args:
            hidden_states: [B, Q, E].
            position_embeddings: not used; a row's positions count from its first real token.
            attention_mask: must be None; see `pads`.
            cache: what has been read before, and where these tokens go.
            pads: left pads of each row; nothing where there are none.
            **kwargs: what else a decoder layer passes on.
        """
        if attention_mask is not None:
            raise UsageError(
                "masks are read by CompressedQwen3ForCausalLM alone; call it and not its base model"
            )
        batch, new, _ = hidden_states.shape
        shape = (batch, new, -1, self.head_dim)
        layer = EntryLayer() if cache is None else entry_layer(cache, self.layer_idx)
        query_B1Q = _positions(layer.seen, new, pads, hidden_states.device)
        query_BAQD = self.q_norm(self.q_proj(hidden_states).view(shape)).transpose(1, 2)
        query_BAQD = self.rotate(query_BAQD, query_B1Q)
        key_BHTD = self.k_norm(self.k_proj(hidden_states).view(shape)).transpose(1, 2)
        value_BHTD = key_BHTD
        if not self.plan.binding:
            value_BHTD = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        token = key_BHTD, value_BHTD, self.compressor.state_BHTG(hidden_states)
        layer.read(self.compressor, token, self.rotate, pads, self.plan.tail)
        out_BAQD = self._attend(query_BAQD, hidden_states, query_B1Q, layer)
        if self.plan.binding:
            out_BAQD = self.rotate(out_BAQD, -query_B1Q)
        if cache is not None:
            layer.forget()
        return self.o_proj(out_BAQD.transpose(1, 2).reshape(batch, new, -1)), None

    def rotate(self, x_BHTD: Tensor, position_BHT: Tensor) -> Tensor:
        """Rotary embedding of the last channels, in Qwen3's half-split layout."""
        if not self.plan.rotary:
            return x_BHTD
        cos, sin = self.rotary(x_BHTD, position_BHT)
        still, turned = x_BHTD.split([x_BHTD.shape[-1] - cos.shape[-1], cos.shape[-1]], dim=-1)
        return torch.cat([still, turned * cos + rotate_half(turned) * sin], dim=-1)

    def _attend(
        self, query_BAQD: Tensor, hidden_BQE: Tensor, position_B1Q: Tensor, layer: EntryLayer
    ) -> Tensor:
        """Read block by block; the plain form is one block with all queries."""
        reads = self._everything(layer)
        new = query_BAQD.shape[2]
        first = layer.seen - new
        train = torch.is_grad_enabled()
        size = min(BLOCK, STRIP) if train and query_BAQD.device.type == "cpu" else BLOCK
        if new <= size:
            return self._block(query_BAQD, hidden_BQE, position_B1Q, reads, first)
        starts = list(range(0, new, size))
        ends = [min(start + size, new) for start in starts]
        entries, lowest = reads.reach(
            [first + start for start in starts], [first + end for end in ends], self.plan.tail
        )
        blocks = []
        for block, (start, end) in enumerate(zip(starts, ends, strict=True)):
            given = (
                query_BAQD[:, :, start:end],
                hidden_BQE[:, start:end],
                position_B1Q[:, :, start:end],
                reads.part(entries[block], lowest[block], first + end),
                first + start,
            )
            if train and new > BLOCK:
                blocks.append(checkpoint(self._block, *given, use_reentrant=False))
            else:
                blocks.append(self._block(*given))
        return torch.cat(blocks, dim=2)

    def _everything(self, layer: EntryLayer) -> Reads:
        """Entries and uncompressed tokens of a layer, keys rotated."""
        assert layer.raw_key is not None
        assert layer.visible_from is not None
        position_B1T = _positions(layer.start, layer.seen - layer.start, layer.pads, layer.raw_key.device)
        raw_key = self.rotate(layer.raw_key, position_B1T)
        raw_value = raw_key if layer.raw_value is None else layer.raw_value
        if layer.keys is None or layer.last_token is None:
            key, none = raw_key[:, :, :0], layer.visible_from[:, :, :0]
            return Reads(
                key, key, layer.index, none, raw_key, raw_value, layer.visible_from, layer.start, self.delay
            )
        value = layer.keys if layer.values is None else layer.values
        return Reads(
            layer.keys,
            value,
            layer.index,
            layer.last_token,
            raw_key,
            raw_value,
            layer.visible_from,
            layer.start,
            self.delay,
        )

    def _block(
        self, query_BAQD: Tensor, hidden_BQE: Tensor, position_B1Q: Tensor, reads: Reads, first: int
    ) -> Tensor:
        """One softmax over entries, uncompressed tokens and sink for queries that begin at position `first`."""
        query_BAQD, key_BHKD, value_BHKD, mask_BHQK = self.operands(
            query_BAQD, hidden_BQE, position_B1Q, reads, first
        )
        out_BAQD = scaled_dot_product_attention(
            query_BAQD,
            key_BHKD,
            value_BHKD,
            attn_mask=mask_BHQK,
            dropout_p=self.attention_dropout if self.training else 0.0,
            scale=self.scaling,
            enable_gqa=True,
        )
        return out_BAQD[..., : self.head_dim]

    def operands(
        self, query_BAQD: Tensor, hidden_BQE: Tensor, position_B1Q: Tensor, reads: Reads, first: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value and mask of the one softmax: entries first, then uncompressed tokens, then the sink."""
        queries = query_BAQD.shape[2]
        seen_BHQN, raw_BHQT = reads.visible(first, queries, self.plan.tail)
        if reads.index_BHND is not None:
            rotate = partial(self.rotate, position_BHT=position_B1Q)
            seen_BHQN = self.compressor.select_BHQN(hidden_BQE, reads.index_BHND, seen_BHQN, rotate)
        masks = [seen_BHQN, raw_BHQT]
        rows, heads = (max(mask.shape[d] for mask in masks) for d in (0, 1))
        mask_BHQK = torch.cat([mask.expand(rows, heads, -1, -1) for mask in masks], dim=-1)
        if heads > 1:
            mask_BHQK = mask_BHQK.repeat_interleave(self.num_key_value_groups, dim=1)
        key_BHKD = torch.cat([reads.key_BHND, reads.raw_key_BHTD], dim=2)
        value_BHKD = key_BHKD
        if not self.plan.binding:
            value_BHKD = torch.cat([reads.value_BHND, reads.raw_value_BHTD], dim=2)
        if self.sinks is None:
            return query_BAQD, key_BHKD, value_BHKD, mask_BHQK
        return self._with_sink(query_BAQD, key_BHKD, value_BHKD, mask_BHQK)

    def _with_sink(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The sink as one more key: a channel that holds its logit in the query, 1 there and 0 elsewhere."""
        assert self.sinks is not None
        logit_BAQ1 = (self.sinks / self.scaling).to(query.dtype)[:, None, None].expand(*query.shape[:-1], 1)
        key = pad(key, (0, 1, 0, 1))
        key[:, :, -1, -1] = 1
        return (
            torch.cat([query, logit_BAQ1], -1),
            key,
            pad(value, (0, 1, 0, 1)),
            pad(mask, (0, 1), value=True),
        )


@dataclass(frozen=True, slots=True)
class Reads:
    """What queries read: entries, and uncompressed tokens from `start` on; keys are rotated.

    `delay` is how many tokens after the one that closes its window an entry is visible.
    """

    key_BHND: Tensor
    value_BHND: Tensor
    index_BHND: Tensor | None
    last_token_BHN: Tensor
    raw_key_BHTD: Tensor
    raw_value_BHTD: Tensor
    visible_from_BHT: Tensor
    start: int
    delay: int

    def visible(self, first: int, queries: int, tail: int) -> tuple[Tensor, Tensor]:
        """Which entries and which uncompressed tokens the queries from position `first` on read, [B, H, Q, …].

        A left pad reads itself alone, so that its softmax is not empty; nobody reads it.
        """
        device = self.visible_from_BHT.device
        query_Q1 = torch.arange(first, first + queries, device=device)[:, None]
        token_T = torch.arange(self.start, self.start + self.visible_from_BHT.shape[2], device=device)
        visible_from_BH1T = self.visible_from_BHT[:, :, None]
        in_tail_QT = token_T > query_Q1 - tail
        ended_Q1 = query_Q1 - self.delay  # windows that are complete with this token are visible
        open_BHQT = (visible_from_BH1T > ended_Q1) | in_tail_QT & (visible_from_BH1T != HIDDEN)
        raw_BHQT = open_BHQT & (token_T <= query_Q1) | (visible_from_BH1T == HIDDEN) & (token_T == query_Q1)
        return self.last_token_BHN[:, :, None] <= ended_Q1, raw_BHQT

    def reach(self, firsts: list[int], ends: list[int], tail: int) -> tuple[list[int], list[int]]:
        """For blocks of queries: how many entries, and from which token on uncompressed ones, they can read."""
        device = self.visible_from_BHT.device
        last_C = torch.tensor(ends, device=device) - 1 - self.delay
        visible_C = (self.last_token_BHN[..., None] <= last_C).sum(2).amax((0, 1))
        first_C = torch.tensor(firsts, device=device)
        latest_T = self.visible_from_BHT.amax((0, 1)).cummax(0).values
        open_C = torch.searchsorted(latest_T, first_C - self.delay, right=True) + self.start
        lowest_C = torch.minimum(open_C, first_C + min(0, 1 - tail)).clamp(min=self.start)
        counts, lowest = torch.stack([visible_C, lowest_C]).tolist()
        return counts, lowest

    def part(self, entries: int, lowest: int, end: int) -> Reads:
        """The first entries, and the uncompressed tokens from `lowest` to before `end`."""
        tokens = slice(lowest - self.start, end - self.start)
        return Reads(
            self.key_BHND[:, :, :entries],
            self.value_BHND[:, :, :entries],
            None if self.index_BHND is None else self.index_BHND[:, :, :entries],
            self.last_token_BHN[:, :, :entries],
            self.raw_key_BHTD[:, :, tokens],
            self.raw_value_BHTD[:, :, tokens],
            self.visible_from_BHT[:, :, tokens],
            lowest,
            self.delay,
        )


def _positions(first: int, tokens: int, pads: tuple[int, ...], device: torch.device) -> Tensor:
    """Positions of rotary embeddings, [B, 1, T], or [1, 1, T] where no row begins later; 0 on pads."""
    token_11T = torch.arange(first, first + tokens, device=device)[None, None]
    if not pads:
        return token_11T
    return (token_11T - torch.tensor(pads, device=device)[:, None, None]).clamp(min=0)


def _rotated_config(config: CompressedQwen3Config, share: float) -> Any:
    """What Qwen3's rotary embedding reads, for heads of the rotated channels alone."""
    narrow = CompressedQwen3Config(
        head_dim=round(config.head_dim * share) or config.head_dim,  # unused where nothing is rotated
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters=config.rope_parameters,
    )
    return narrow
