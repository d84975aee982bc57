"""The reach that a config is read to have, against models of `transformers` with random weights.

A model is compared with one of the same weights whose grid has no limit: up to the reach both give the same logits,
soon beyond it they don't.
"""

from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DeepseekV4Config, DeepseekV4ForCausalLM

from phasescope.checkpoints.grids import read_config

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.5,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "num_experts_per_tok": 1,
}
MINIMAX = {
    "index_block_size": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "rotary_dim": 8,
    "intermediate_size": 32,
    "dense_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "layer_types": ["minimax_m3_sparse"] * 2,
    "mlp_layer_types": ["dense"] * 2,
}
QWEN4 = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_experts": 2,
    "hc_lowrank": 8,
    "layer_types": ["indexed_attention"] * 2,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_compress_ratio": 4,
}
LLAMA4 = {"intermediate_size": 32, "intermediate_size_mlp": 32, "num_local_experts": 1, "moe_layers": []}


def last_logits(model: Any, tokens: int) -> torch.Tensor:
    ids = torch.randint(2, 64, (1, tokens), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0, -1]
    return logits


@pytest.mark.parametrize(
    ("kind", "settings", "limit"),
    [
        ("minimax_m3_vl_text", MINIMAX, {"index_topk_blocks": 3}),
        ("qwen4_exp_text", QWEN4, {"indexer_budget": 16}),
        ("llama4_text", LLAMA4, {"attention_chunk_size": 16}),
    ],
)
def test_up_to_the_reach_nothing_depends_on_the_grid(
    kind: str, settings: dict[str, Any], limit: dict[str, int]
) -> None:
    """Exactly nothing, and one window further there is a difference."""
    torch.manual_seed(0)
    limited = CONFIG_MAPPING[kind](**SHAPE, **settings, **limit)
    free = CONFIG_MAPPING[kind](**SHAPE, **settings, **dict.fromkeys(limit, 4096))
    model, twin = (AutoModelForCausalLM.from_config(config).eval() for config in (limited, free))
    twin.load_state_dict(model.state_dict())
    found = read_config(limited.to_dict())
    assert found.reach is not None
    assert all(fold.exact for fold in found.folds)
    for tokens in (found.reach - 1, found.reach):
        assert torch.equal(last_logits(model, tokens), last_logits(twin, tokens))
    beyond = found.reach + found.strides[0]
    assert (last_logits(model, beyond) - last_logits(twin, beyond)).abs().max() > 0.01


def test_deepseek_v4_reads_entries_within_its_raw_window_too() -> None:
    """Why its reach is one of retrieval: a gate's bias moves the logits from the first complete window on."""
    torch.manual_seed(0)
    shape = {
        **SHAPE,
        "num_key_value_heads": 1,
        "compress_ratios": [4, 4],
        "sliding_window": 16,
        "q_lora_rank": 8,
    }
    small = {
        "o_lora_rank": 8,
        "o_groups": 2,
        "n_routed_experts": 2,
        "moe_intermediate_size": 16,
        "index_head_dim": 16,
    }
    config = DeepseekV4Config(**shape, **small, index_n_heads=2, partial_rotary_factor=0.5)
    model = DeepseekV4ForCausalLM(config).eval()
    before = {tokens: last_logits(model, tokens) for tokens in (3, 4)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("position_bias"):
                parameter.copy_(torch.randn_like(parameter) * 3)
    fold = read_config(config.to_dict()).folds[0]
    assert (fold.reach, fold.exact) == (16, False)
    assert torch.equal(last_logits(model, 3), before[3])
    assert not torch.equal(last_logits(model, 4), before[4])
