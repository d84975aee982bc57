"""One attention layer of DeepSeek-V4, of `transformers` and of ours, with the same weights.

Used by the tests and by `python -m research.linear_cost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DeepseekV4Config, DynamicCache
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4Attention,
    DeepseekV4RotaryEmbedding,
)

from phasescope.models import CompressedQwen3Config
from phasescope.models.attention import CompressedAttention

TYPES = {"csa": "compressed_sparse_attention", "hca": "heavily_compressed_attention"}


@dataclass(frozen=True, slots=True)
class Layer:
    """Sizes of a layer.

    Attributes:
        kind: which of the two compressed branches.
        stride: tokens per entry.
        hidden, heads, channels: model width, query heads, channels of a head and of an entry.
        rotated: channels of a head that are rotated.
        window: tokens that are read raw.
        topk: entries that a query reads; None for all, which only HCA can.
        index_heads, index_channels: of the indexer.
    """

    kind: Literal["csa", "hca"]
    stride: int
    hidden: int
    heads: int
    channels: int
    rotated: int
    window: int
    topk: int | None
    index_heads: int
    index_channels: int

    @property
    def order(self) -> list[int]:
        """Our channel i of a head is their channel order[i]."""
        return order(self.channels, self.rotated)

    @property
    def grid(self) -> dict[str, int]:
        """Width, stride and shift."""
        if self.kind == "hca":
            return {"width": self.stride, "stride": self.stride}
        return {"width": 2 * self.stride, "stride": self.stride, "shift": self.stride}


def order(channels: int, rotated: int) -> list[int]:
    """Rotated pairs lie side by side in their layer, half a head apart in ours; the others stay in place."""
    still = channels - rotated
    return [*range(still), *range(still, channels, 2), *range(still + 1, channels, 2)]


def theirs(sizes: Layer, dtype: torch.dtype = torch.float64) -> DeepseekV4Attention:
    """A layer of `transformers` with random weights, biases and sinks, whose query is a plain projection.

    It is one for inputs of unit mean square: the low-rank step is the identity, and its norm leaves them alone.
    """
    rope = {
        "rope_type": "default",
        "rope_theta": 160000.0,
        "partial_rotary_factor": sizes.rotated / sizes.channels,
    }
    config = DeepseekV4Config(
        vocab_size=50,
        hidden_size=sizes.hidden,
        num_hidden_layers=1,
        num_attention_heads=sizes.heads,
        head_dim=sizes.channels,
        q_lora_rank=sizes.hidden,
        o_groups=1,
        o_lora_rank=sizes.hidden,
        layer_types=[TYPES[sizes.kind]],
        mlp_layer_types=["moe"],
        compress_rates=dict.fromkeys(TYPES.values(), sizes.stride),
        sliding_window=sizes.window,
        index_n_heads=sizes.index_heads,
        index_head_dim=sizes.index_channels,
        index_topk=sizes.topk or 1,
        rope_parameters={"main": rope, "compress": rope},
        rms_norm_eps=1e-6,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    layer = DeepseekV4Attention(config, 0).to(dtype).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
        for name, parameter in layer.named_parameters():
            if name.endswith("norm.weight"):
                parameter.add_(1)
        layer.q_a_proj.weight.copy_(torch.eye(sizes.hidden))
        layer.q_a_norm.weight.fill_(1)
    return layer


def ours(sizes: Layer, layer: Any) -> CompressedAttention:
    """The same weights in our layer."""
    indexer = {"topk": sizes.topk, "index_heads": sizes.index_heads, "index_dim": sizes.index_channels}
    config = CompressedQwen3Config(
        vocab_size=50,
        hidden_size=sizes.hidden,
        num_hidden_layers=1,
        num_attention_heads=sizes.heads,
        num_key_value_heads=1,
        head_dim=sizes.channels,
        rope_parameters={"rope_type": "default", "rope_theta": 160000.0},
        rms_norm_eps=1e-6,
        compression={
            "compressor": sizes.kind,
            **sizes.grid,
            "tail": sizes.window,
            "binding": True,
            "sink": True,
            "rotary": sizes.rotated / sizes.channels,
            "settings": {} if sizes.topk is None else indexer,
        },
    )
    mine: Any = CompressedAttention(config, 0).to(layer.q_b_proj.weight.dtype).eval()
    with torch.no_grad():
        mine.q_proj.weight.copy_(_rows(layer.q_b_proj.weight, sizes.order))
        mine.k_proj.weight.copy_(_rows(layer.kv_proj.weight, sizes.order))
        mine.k_norm.weight.copy_(layer.kv_norm.weight[sizes.order])
        mine.sinks.copy_(layer.sinks)
        output = layer.o_b_proj.weight @ layer.o_a_proj.weight
        mine.o_proj.weight.copy_(_rows(output.T, sizes.order).T)
        _copy(mine.compressor.pool, layer.compressor, sizes.order)
        if sizes.topk is not None:
            their_indexer = layer.compressor.indexer
            index_order = order(sizes.index_channels, sizes.rotated)
            _copy(mine.compressor.indexer.keys, their_indexer, index_order)
            mine.compressor.indexer.q_proj.weight.copy_(_rows(their_indexer.q_b_proj.weight, index_order))
            mine.compressor.indexer.weights_proj.weight.copy_(their_indexer.scorer.weights_proj.weight)
    built: CompressedAttention = mine
    return built


def _rows(weight: Tensor, places: list[int]) -> Tensor:
    """Reorder the rows within each head."""
    return weight.unflatten(0, (-1, len(places)))[:, places].flatten(0, 1)


def _copy(mine: Any, their: Any, places: list[int]) -> None:
    mine.kv_proj.weight.copy_(_rows(their.kv_proj.weight, places))
    mine.gate_proj.weight.copy_(_rows(their.gate_proj.weight, places))
    mine.position_bias.copy_(_rows(their.position_bias.T, places).T)
    mine.kv_norm.weight.copy_(their.kv_norm.weight[places])


def unit_inputs(sizes: Layer, tokens: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random hidden states of unit mean square, [1, T, E]."""
    hidden = torch.randn(1, tokens, sizes.hidden, dtype=dtype, generator=torch.Generator().manual_seed(2))
    return hidden / hidden.square().mean(-1, keepdim=True).sqrt()


def arguments(layer: DeepseekV4Attention, hidden: Tensor, start: int = 0) -> dict[str, Any]:
    """What their layer wants beside its input, for tokens from position `start` on."""
    rotary = DeepseekV4RotaryEmbedding(layer.config)
    position = torch.arange(start, start + hidden.shape[1])[None]
    window = layer.config.sliding_window
    token = torch.arange(max(0, start - window + 1), start + hidden.shape[1])
    gap = position[0][:, None] - token
    mask = torch.zeros(gap.shape, dtype=hidden.dtype).masked_fill_((gap < 0) | (gap >= window), -torch.inf)
    return {
        "position_embeddings": {k: rotary(hidden, position, layer_type=k) for k in ("main", "compress")},
        "position_ids": position,
        "attention_mask": mask[None, None],
    }


def read_theirs(layer: Any, hidden: Tensor, parts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Output, entries, and which entries each query reads (of its own part's last state)."""
    cache, outputs, biases, start = DynamicCache(config=layer.config), [], [], 0
    seen: list[Any] = []
    hook = layer.compressor.register_forward_hook(lambda module, given, out: seen.append(out))
    for part in hidden.split(parts, dim=1):
        out, _ = layer(part, cache=cache, **arguments(layer, part, start))
        outputs.append(out)
        entries, bias = seen[-1]
        if bias is None:  # a single query sees every entry there is
            bias = entries.new_zeros(1, 1, part.shape[1], entries.shape[2])
        biases.append(bias[0, 0] == 0)
        start += part.shape[1]
    hook.remove()
    return torch.cat(outputs, dim=1), seen[-1][0], padded(biases)


def padded(masks: list[Tensor]) -> Tensor:
    """Masks of queries over entries under each other; what a mask does not reach is not read."""
    most = masks[-1].shape[1]
    return torch.cat([pad(mask, (0, most - mask.shape[1])) for mask in masks])
