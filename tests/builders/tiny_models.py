"""Small models with random weights, one of each kind of cache."""

from __future__ import annotations

from typing import Any

from transformers import DeepseekV4Config, DeepseekV4ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM
from phasescope.text.synthetic import RetrievalVocabulary

VOCABULARY = RetrievalVocabulary.contiguous(16, 24, 24)
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.5,  # far from uniform answers, so that a wrong cache shows
}
GRIDS = [
    {"compressor": "scalar_gate", "width": 8, "stride": 8},
    {"compressor": "scalar_gate", "width": 8, "stride": 4, "shift": (0, 2), "tail": 3},
    {"compressor": "vector_gate", "width": 4, "stride": 4, "shift": ((0, 2), (1, 3))},
    {"compressor": "uniform", "width": 12, "stride": 12},
    None,
]


def ours(compression: dict[str, Any] | None) -> Any:
    """One of our models with random weights."""
    return CompressedQwen3ForCausalLM(
        CompressedQwen3Config(**SHAPE, num_key_value_heads=2, intermediate_size=64, compression=compression)
    )


def qwen3() -> Any:
    """A plain Qwen3 with random weights."""
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=2, intermediate_size=64))


def deepseek_v4() -> Any:
    """All three attention kinds of DeepSeek-V4, with random weights.

    The indexer keeps every entry: its ties are broken by the prompt's length, and a longer prompt would
    then give other logits by itself.
    """
    config = DeepseekV4Config(
        **{**SHAPE, "num_hidden_layers": 3, "initializer_range": 0.2},
        moe_intermediate_size=32,
        num_key_value_heads=1,
        q_lora_rank=16,
        o_lora_rank=8,
        o_groups=2,
        n_routed_experts=4,
        num_experts_per_tok=2,
        hc_mult=2,
        sliding_window=16,
        index_n_heads=32,
        index_head_dim=16,
        index_topk=512,
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
        mlp_layer_types=["moe"] * 3,
    )
    return DeepseekV4ForCausalLM(config)


MODELS = {f"ours {grid and grid['compressor']}": lambda grid=grid: ours(grid) for grid in GRIDS}
MODELS |= {"qwen3": qwen3, "deepseek_v4": deepseek_v4}
