"""CSA and HCA against `transformers`' own DeepSeek-V4 layers with the same weights, in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV4Config, DynamicCache
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4Attention,
    DeepseekV4RotaryEmbedding,
)

from phasescope import UsageError
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM, EntryCache, attention
from phasescope.models.attention import CompressedAttention

EXACT = 1e-5  # relative: norms and rotary embeddings of both compute in float32
WIDTH, HEADS, DIM, ROTATED, TOKENS = 48, 4, 16, 8, 61
KINDS = {
    "csa": ("compressed_sparse_attention", {"width": 8, "stride": 4, "shift": 4}),
    "hca": ("heavily_compressed_attention", {"width": 6, "stride": 6}),
}
ORDER = [*range(DIM - ROTATED), *range(DIM - ROTATED, DIM, 2), *range(DIM - ROTATED + 1, DIM, 2)]
"""Our channel i is their channel ORDER[i]: rotated pairs lie side by side there, half a head apart here."""


def theirs(kind: str, topk: int) -> DeepseekV4Attention:
    """A layer with random weights, biases and sinks."""
    layer_type, grid = KINDS[kind]
    rope = {"rope_type": "default", "rope_theta": 160000.0, "partial_rotary_factor": ROTATED / DIM}
    config = DeepseekV4Config(
        vocab_size=50,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        head_dim=DIM,
        q_lora_rank=WIDTH,
        o_groups=1,
        o_lora_rank=WIDTH,
        layer_types=[layer_type],
        mlp_layer_types=["moe"],
        compress_rates=dict.fromkeys((name for name, _ in KINDS.values()), grid["stride"]),
        sliding_window=9,
        index_n_heads=3,
        index_head_dim=DIM,
        index_topk=topk,
        rope_parameters={"main": rope, "compress": rope},
        rms_norm_eps=1e-6,
    )
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    layer = DeepseekV4Attention(config, 0).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
        for name, parameter in layer.named_parameters():
            if name.endswith("norm.weight"):
                parameter.add_(1)
        # Our inputs have unit mean square, so that these two leave them as they are: q is a plain projection.
        layer.q_a_proj.weight.copy_(torch.eye(WIDTH))
        layer.q_a_norm.weight.fill_(1)
    return layer


def ours(kind: str, layer: DeepseekV4Attention, topk: int | None) -> CompressedAttention:
    """The same weights in our layer."""
    _, grid = KINDS[kind]
    settings = {} if topk is None else {"topk": topk, "index_heads": 3, "index_dim": DIM}
    config = CompressedQwen3Config(
        vocab_size=50,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=DIM,
        rope_parameters={"rope_type": "default", "rope_theta": 160000.0},
        rms_norm_eps=1e-6,
        compression={
            "compressor": kind,
            **grid,
            "tail": 9,
            "binding": True,
            "sink": True,
            "rotary": ROTATED / DIM,
            "settings": settings,
        },
    )
    mine = CompressedAttention(config, 0).double().eval()
    with torch.no_grad():
        mine.q_proj.weight.copy_(_rows(layer.q_b_proj.weight, HEADS))
        mine.k_proj.weight.copy_(_rows(layer.kv_proj.weight, 1))
        mine.k_norm.weight.copy_(layer.kv_norm.weight[ORDER])
        mine.sinks.copy_(layer.sinks)
        output = layer.o_b_proj.weight @ layer.o_a_proj.weight
        mine.o_proj.weight.copy_(output.unflatten(1, (HEADS, DIM))[:, :, ORDER].flatten(1))
        series = 2 if kind == "csa" else 1
        _copy(mine.compressor.pool, layer.compressor, series)
        if topk is not None:
            indexer = layer.compressor.indexer
            _copy(mine.compressor.indexer.keys, indexer, series)
            mine.compressor.indexer.q_proj.weight.copy_(_rows(indexer.q_b_proj.weight, 3))
            mine.compressor.indexer.weights_proj.weight.copy_(indexer.scorer.weights_proj.weight)
    return mine


def _rows(weight: Tensor, heads: int) -> Tensor:
    return weight.unflatten(0, (heads, DIM))[:, ORDER].flatten(0, 1)


def _copy(mine: Any, their: Any, series: int) -> None:
    mine.kv_proj.weight.copy_(_rows(their.kv_proj.weight, series))
    mine.gate_proj.weight.copy_(_rows(their.gate_proj.weight, series))
    mine.position_bias.copy_(their.position_bias.unflatten(1, (series, DIM))[:, :, ORDER].flatten(1))
    mine.kv_norm.weight.copy_(their.kv_norm.weight[ORDER])


def read_theirs(
    layer: DeepseekV4Attention, hidden: Tensor, parts: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, entries, and which entries each query reads (of its own part's last state)."""
    cache, outputs, biases, start = DynamicCache(config=layer.config), [], [], 0
    rotary = DeepseekV4RotaryEmbedding(layer.config)
    seen: list[Any] = []
    hook = layer.compressor.register_forward_hook(lambda module, given, out: seen.append(out))
    for part in hidden.split(parts, dim=1):
        position = torch.arange(start, start + part.shape[1])[None]
        embedding = {kind: rotary(part, position, layer_type=kind) for kind in ("main", "compress")}
        token = torch.arange(max(0, start - 8), start + part.shape[1])
        gap = position[0][:, None] - token
        mask = torch.zeros(gap.shape, dtype=hidden.dtype).masked_fill((gap < 0) | (gap >= 9), -torch.inf)
        out, _ = layer(part, embedding, position, mask[None, None], cache=cache)
        outputs.append(out)
        entries, bias = seen[-1]
        if bias is None:  # a single query sees every entry there is
            bias = entries.new_zeros(1, 1, part.shape[1], entries.shape[2])
        biases.append(bias[0, 0] == 0)
        start += part.shape[1]
    hook.remove()
    most = biases[-1].shape[1]
    read = torch.cat([torch.nn.functional.pad(x, (0, most - x.shape[1])) for x in biases])
    return torch.cat(outputs, dim=1), seen[-1][0], read


def read_ours(layer: CompressedAttention, hidden: Tensor, parts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """The same of our layer; what is read is observed where the softmax is made."""
    config = layer.config
    cache, outputs, masks = EntryCache(config), [], []
    plain = attention.scaled_dot_product_attention

    def spy(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor, **rest: Any) -> Tensor:
        entries = 0 if cache.layers[0].keys is None else cache.layers[0].keys.shape[2]
        masks.append(attn_mask[0, 0, :, :entries])
        return plain(query, key, value, attn_mask=attn_mask, **rest)

    attention.scaled_dot_product_attention = spy
    try:
        for part in hidden.split(parts, dim=1):
            outputs.append(layer(part, cache=cache)[0])
    finally:
        attention.scaled_dot_product_attention = plain
    most = masks[-1].shape[1]
    read = torch.cat([torch.nn.functional.pad(x, (0, most - x.shape[1])) for x in masks])
    return torch.cat(outputs, dim=1), cache.layers[0].keys, read


@pytest.mark.parametrize("parts", [[TOKENS], [1] * TOKENS, [5, 1, 2, 26, 1, 26], [33, *[1] * 28]], ids=str)
@pytest.mark.parametrize(("kind", "topk"), [("csa", 3), ("csa", 100), ("hca", 1)])
@torch.no_grad()
def test_entries_choice_and_output_equal_deepseek_v4(kind: str, topk: int, parts: list[int]) -> None:
    """To 1e-5 relative, in one pass, in parts and token by token; the same entries are read by each query."""
    layer = theirs(kind, topk)
    mine = ours(kind, layer, topk if kind == "csa" else None)
    hidden = torch.randn(1, TOKENS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    hidden = hidden / hidden.square().mean(-1, keepdim=True).sqrt()
    their_out, their_entries, their_read = read_theirs(layer, hidden, parts)
    our_out, our_entries, our_read = read_ours(mine, hidden, parts)
    assert our_entries.shape == their_entries.shape
    for a, b in ((our_entries, their_entries[..., ORDER]), (our_out, their_out)):
        assert float((a - b).norm() / b.norm()) < EXACT
        torch.testing.assert_close(a, b, rtol=EXACT, atol=EXACT * float(b.abs().max()))
    assert torch.equal(our_read, their_read)
    if topk == 3:
        assert int(our_read.sum(1).max()) == 3  # the indexer did choose


@torch.no_grad()
def test_scores_of_the_indexer_equal_deepseek_v4() -> None:
    """The scores before the choice, not only the choice."""
    layer = theirs("csa", 3)
    mine = ours("csa", layer, 3)
    hidden = torch.randn(1, 20, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    rotary, position = DeepseekV4RotaryEmbedding(layer.config), torch.arange(20)[None]
    cos, sin = rotary(hidden, position, layer_type="compress")
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import apply_rotary_pos_emb

    indexer = layer.compressor.indexer
    query = apply_rotary_pos_emb(indexer.q_b_proj(hidden).view(1, 20, 3, DIM).transpose(1, 2), cos, sin)
    keys = torch.randn(1, 7, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    expected = indexer.scorer(query.transpose(1, 2), keys, hidden)
    found = mine.compressor.indexer.scores_BQN(
        hidden, keys[..., ORDER], lambda x: mine.rotate(x, position[None])
    )
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stride", [1, 2])
@torch.no_grad()
def test_the_grids_of_v4_1_are_settings(stride: int) -> None:
    """Stride 2 pools pairs; stride 1 pools nothing: an entry is the normed projection of its token."""
    config = CompressedQwen3Config(
        vocab_size=50,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=DIM,
        compression={"compressor": "hca", "width": stride, "stride": stride, "tail": 4, "binding": True},
    )
    pool = CompressedQwen3ForCausalLM(config).model.layers[0].self_attn.compressor
    hidden = torch.randn(1, 10, WIDTH)
    zeros = torch.zeros(1, 1, 10, DIM)
    entries = pool.entries(zeros, zeros, pool.state_BHTG(hidden))
    assert entries.closes_BHN[0, 0].tolist() == list(range(stride - 1, 10, stride))
    if stride == 1:
        expected = pool.pool.kv_norm(pool.pool.kv_proj(hidden))
        torch.testing.assert_close(entries.key_BHND[:, 0], expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tail": 2}, "coverage hole: csa reads raw tokens in its tail of 2 only.*set tail to 3"),
        ({"binding": False}, "set binding to true"),
        ({"width": 12}, "needs the grid W8/S4"),
        ({"settings": {"topk": 0}}, "topk is 0"),
        ({"settings": {"top_k": 4}}, "has no setting top_k; it has topk, index_heads, index_dim"),
    ],
)
def test_what_cannot_be_built_is_one_clear_line(change: dict[str, Any], said: str) -> None:
    """A hole in the coverage is refused with its reason, as is a grid that CSA does not have."""
    plan = {"compressor": "csa", "width": 8, "stride": 4, "shift": 4, "tail": 128, "binding": True, **change}
    with pytest.raises(UsageError, match=said):
        CompressedQwen3ForCausalLM(
            CompressedQwen3Config(
                vocab_size=50,
                hidden_size=WIDTH,
                num_hidden_layers=1,
                num_attention_heads=HEADS,
                num_key_value_heads=1,
                head_dim=DIM,
                compression=plan,
            )
        )
