"""CSA and HCA against `transformers`' own DeepSeek-V4 layers with the same weights, in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
    DeepseekV4RotaryEmbedding,
    apply_rotary_pos_emb,
)

from phasescope import UsageError
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM, EntryCache, attention
from phasescope.models.attention import CompressedAttention
from tests.builders.deepseek import Layer, order, ours, padded, read_theirs, theirs, unit_inputs

EXACT = 1e-5  # relative: norms and rotary embeddings of both compute in float32
WIDTH, HEADS, DIM, ROTATED, TOKENS = 48, 4, 16, 8, 61
STRIDES = {"csa": 4, "hca": 6}
ORDER = order(DIM, ROTATED)


def sizes(kind: Any, topk: int) -> Layer:
    """A small layer; HCA has no indexer."""
    return Layer(
        kind=kind,
        stride=STRIDES[kind],
        hidden=WIDTH,
        heads=HEADS,
        channels=DIM,
        rotated=ROTATED,
        window=9,
        topk=topk if kind == "csa" else None,
        index_heads=16,  # with few, many scores are exactly 0, and ties are broken differently there
        index_channels=DIM,
    )


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
    return torch.cat(outputs, dim=1), cache.layers[0].keys, padded(masks)


@pytest.mark.parametrize("parts", [[TOKENS], [1] * TOKENS, [5, 1, 2, 26, 1, 26], [33, *[1] * 28]], ids=str)
@pytest.mark.parametrize(("kind", "topk"), [("csa", 3), ("csa", 100), ("hca", 1)])
@torch.no_grad()
def test_entries_choice_and_output_equal_deepseek_v4(kind: str, topk: int, parts: list[int]) -> None:
    """To 1e-5 relative, in one pass, in parts and token by token; the same entries are read by each query."""
    layer = theirs(sizes(kind, topk))
    mine = ours(sizes(kind, topk), layer)
    hidden = unit_inputs(sizes(kind, topk), TOKENS)
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
    layer = theirs(sizes("csa", 3))
    mine = ours(sizes("csa", 3), layer)
    hidden = torch.randn(1, 20, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    rotary, position = DeepseekV4RotaryEmbedding(layer.config), torch.arange(20)[None]
    cos, sin = rotary(hidden, position, layer_type="compress")
    indexer = layer.compressor.indexer
    query = apply_rotary_pos_emb(indexer.q_b_proj(hidden).view(1, 20, 16, DIM).transpose(1, 2), cos, sin)
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
    assert entries.last_token_BHN[0, 0].tolist() == list(range(stride - 1, 10, stride))
    if stride == 1:
        expected = pool.pool.kv_norm(pool.pool.kv_proj(hidden))
        torch.testing.assert_close(entries.key_BHND[:, 0], expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tail": 2}, "unread tokens: csa reads only the last 2 tokens uncompressed.*set tail to 3"),
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
