"""A tiny random model of every causal family of the installed `transformers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto import modeling_auto

from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.errors import UsageError
from phasescope.records import Trial
from phasescope.text.synthetic import RetrievalVocabulary

CAUSAL: dict[str, str] = dict(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
"""Every model type that `AutoModelForCausalLM` knows, and its class."""


def _each(size: int, names: str) -> dict[str, int]:
    return dict.fromkeys(names.split(), size)


SIZES: dict[str, int] = {
    **_each(
        64, "hidden_size n_embd d_model dim embedding_size word_embed_proj_dim attention_hidden_size emb_dim"
    ),
    **_each(64, "lru_width embedding_dim input_embedding_size output_embedding_size ple_embed_dim"),
    **_each(64, "hidden_size_per_layer_input hidden_size_global"),
    **_each(4, "num_hidden_layers n_layer n_layers num_layers decoder_layers num_decoder_layers num_blocks"),
    **_each(4, "encoder_layers num_encoder_layers"),
    **_each(
        4, "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads"
    ),
    **_each(
        4, "attention_heads num_decoder_attention_heads num_encoder_attention_heads swa_num_attention_heads"
    ),
    **_each(4, "index_n_heads linear_num_value_heads linear_num_heads"),
    **_each(
        2, "num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads num_query_groups"
    ),
    **_each(16, "head_dim kv_channels swa_head_dim index_head_dim linear_key_head_dim linear_value_head_dim"),
    **_each(
        16,
        "linear_head_dim v_head_dim qk_nope_head_dim attention_head_dim attention_head_size global_head_dim",
    ),
    **_each(8, "qk_rope_head_dim rotary_dim mamba_d_state ssm_state_size state_size"),
    **_each(8, "mamba_n_heads mamba_num_heads"),
    **_each(16, "mamba_d_head mamba_head_dim"),
    **_each(1, "mamba_n_groups n_groups mamba_ngroups n_group topk_group num_expert_group"),
    **_each(32, "kv_lora_rank q_lora_rank o_lora_rank"),
    **_each(64, "intermediate_size ffn_dim n_inner decoder_ffn_dim encoder_ffn_dim moe_intermediate_size"),
    **_each(
        64, "shared_expert_intermediate_size ffn_hidden_size intermediate_size_mlp expert_ffn_hidden_size"
    ),
    **_each(64, "dense_intermediate_size shared_intermediate_size dff dim_ff feed_forward_size mamba_d_ssm"),
    **_each(64, "moe_shared_expert_intermediate_size"),
    **_each(4, "num_experts n_routed_experts num_local_experts moe_num_experts"),
    **_each(2, "num_experts_per_tok num_experts_per_token moe_topk moe_k"),
    **_each(128, "vocab_size vocab_size_per_layer_input unpadded_vocab_size"),
    # Shorter than the prompts, so that what lies outside is met.
    **_each(16, "sliding_window attention_chunk_size"),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""The largest value of each field. Layers hold one of each kind where their pattern allows it."""
SPREAD = 0.1
"""Of the weights: far from uniform answers, so that a wrong cache shows."""

ROPE = {"rope_type": "default", "rope_theta": 1e4}
OVERRIDES: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "bamba": {"attn_layer_indices": [1]},
    "blt": {"encoder_hash_byte_group_vocab": 128},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE}},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64},
    },
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots3_note": {
        "vision_config": {"num_hidden_layers": 42, "adapter_in_dim": 64, "adapter_out_dim": 64},
        "audio_config": {"adapter_input_size": 64, "adapter_out_dim": 64},
    },
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma3n_text": {
        "intermediate_size": 64,
        "num_kv_shared_layers": 1,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8},
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"layer_types": ["linear_attention", "full_attention", "moe", "linear_attention"]},
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "qwen4_exp_text": {
        **{"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 16},
        "indexer_compress_ratio": 4,
        "layer_types": ["linear_attention", "indexed_attention"] * 2,
    },
    "reformer": {
        "axial_pos_embds_dim": [16, 48],
        "axial_pos_shape": [32, 32],
        "max_position_embeddings": 1024,
    },
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
    },
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "attention_hidden_size": 128,
        "attention_head_dim": 32,
    },
}
"""What the rules cannot know: layers of each kind within four, and defaults that fit only the full size."""
PARTS = {"musicgen": "decoder", "musicgen_melody": "decoder"}
"""Where `transformers` lists the config of the whole for a class that takes a part of it."""


def tiny_model(model_type: str) -> Any:
    """A model of four layers with random weights, in float32; the same each time.

    Raises:
        Exception: whatever the library raises where it cannot build it.
    """
    config = AutoConfig.for_model(model_type)
    if model_type in PARTS:
        config = getattr(config, PARTS[model_type])
    config = type(config)(**_settings(config, model_type))
    torch.manual_seed(0)
    if model_type in PARTS:
        return getattr(transformers, CAUSAL[model_type])._from_config(config, dtype=torch.float32).eval()
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def _settings(config: Any, model_type: str) -> dict[str, Any]:
    """What to build a small config from: only sizes, so that everything else follows from them as it should."""
    parts = getattr(type(config), "sub_configs", {})
    given: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        if name in parts and isinstance(value, dict):
            part = getattr(config, name)
            given[name] = {**_settings(part, part.model_type), "model_type": part.model_type}
        elif name in SIZES and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            given[name] = min(value, SIZES[name])
        elif name in ("initializer_range", "init_std"):
            given[name] = SPREAD
        elif name == "is_decoder":
            given[name] = True
    if given.get("qk_rope_head_dim") and "head_dim" in given:
        given["head_dim"] = given["qk_rope_head_dim"]  # there it counts rotated channels alone
    if "kv_lora_rank" in given and "num_key_value_heads" in given:
        given["num_key_value_heads"] = given["num_attention_heads"]  # keys are made for each head
    if "encoder_layers" in given and "decoder_layers" in given:
        given["encoder_layers"] = given["decoder_layers"] = 4  # the cache has as many layers as the encoder
    for name, value in OVERRIDES.get(model_type, {}).items():
        given[name] = given[name] | value if value and isinstance(given.get(name), dict) else value
    return given


VOCABULARY = RetrievalVocabulary.contiguous(8, 40, 40)
TOLERANCE = 1e-5
"""Nats per token by which an answer may differ from the model's own fresh forward, in float32."""


@dataclass(frozen=True)
class Measured:
    """How a family is read.

    Attributes:
        kind: the model type.
        way: "shared": many questions after one prefill; "alone": each prompt by itself, without a cache; "refused"; or
            "not built", where this machine could not make a tiny model of it.
        why: of any way but the first, in the words of the message.
        difference: largest difference from fresh forwards, in nats per token; None where nothing was answered.
    """

    kind: str
    way: Literal["shared", "alone", "refused", "not built"]
    why: str = ""
    difference: float | None = None


def measured(kind: str) -> Measured:
    """Build a tiny model of a family, ask it three questions after one prefix, and ask the model itself."""
    try:
        model = tiny_model(kind)
    except Exception as error:  # whatever a library of two hundred families raises
        return Measured(kind, "not built", " ".join(str(error).split())[:160])
    backend = TransformersBackend(model, VOCABULARY, name=kind)
    trials = questions()
    try:
        replies = backend.answer(trials)
    except UsageError as error:
        return Measured(kind, "refused", str(error).removeprefix(f"{kind} "))
    away = [
        abs((reply.answer_logprob or 0.0) - fresh(model, trial)) / len(trial.answer_ids)
        for reply, trial in zip(replies, trials, strict=True)
    ]
    fault = backend.proof.fault
    return Measured(kind, "alone" if fault else "shared", fault or "", max(away))


def questions() -> list[Trial]:
    """Three questions of 4 tokens after 40 shared ones, with answers of two."""
    rng = np.random.default_rng(0)
    shared, *rest = (tuple(rng.integers(3, 120, n).tolist()) for n in (40, 6, 6, 6))
    return [Trial((*shared, *ids[:4]), ids[4:], ids[4:], 3, f"b{n}", "c", 0) for n, ids in enumerate(rest)]


@torch.inference_mode()
def fresh(model: Any, trial: Trial) -> float:
    """Log-probability of the answer by one forward of the whole, called as plainly as can be."""
    ids = torch.tensor([trial.prompt_ids + trial.answer_ids[:-1]])
    model.config.use_cache = False
    logprobs = model(input_ids=ids).logits[0].float().log_softmax(-1)
    last = len(trial.prompt_ids) - 1
    return sum(float(logprobs[last + n, token]) for n, token in enumerate(trial.answer_ids))
