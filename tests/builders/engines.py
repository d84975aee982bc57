"""Tiny models with random weights, of our own and of `transformers`."""

from typing import Any

import torch
from benchmarks.planted_faults import SHAPE, deepseek_v4, dense, ours
from transformers import MiniMaxM3VLTextConfig, Qwen4ExpTextConfig
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLForCausalLM
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM


def minimax_m3() -> Any:
    """Block selection on every layer; positions and key slots part under left padding."""
    config = MiniMaxM3VLTextConfig(
        **SHAPE,
        num_key_value_heads=2,
        intermediate_size=32,
        dense_intermediate_size=64,
        shared_intermediate_size=32,
        num_local_experts=2,
        num_experts_per_tok=1,
        rotary_dim=8,
        index_n_heads=2,
        index_head_dim=8,
        index_block_size=8,
        index_topk_blocks=3,
        layer_types=["minimax_m3_sparse"] * 2,
        mlp_layer_types=["dense"] * 2,
        bos_token_id=None,
        eos_token_id=None,
    )
    return MiniMaxM3VLForCausalLM(config)


def qwen4_exp() -> Any:
    """A linear layer and one with an indexer that counts visible tokens."""
    config = Qwen4ExpTextConfig(
        **SHAPE,
        num_key_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        num_experts=2,
        num_experts_per_tok=1,
        hc_count=2,
        hc_lowrank=8,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=16,
        indexer_budget=16,
        indexer_compress_ratio=4,
        layer_types=["linear_attention", "indexed_attention"],
    )
    return Qwen4ExpForCausalLM(config)


BUILD = {
    "qwen3": dense,
    "ours": lambda: ours("scalar_gate", 8, 4),
    "deepseek_v4": lambda: deepseek_v4(index_heads=32, topk=64),
    "deepseek_v4 with ties": deepseek_v4,
    "minimax_m3": minimax_m3,
    "qwen4_exp": qwen4_exp,
}


def build(name: str, seed: int = 0) -> Any:
    """One of them; the same seed gives the same weights."""
    torch.manual_seed(seed)
    return BUILD[name]().eval()
