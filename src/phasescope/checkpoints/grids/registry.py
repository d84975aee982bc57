"""Which family reads which model type: the table, and the way from a config to a target.

A family is found by model type, never by field names alone: configs carry fields of other families that no code reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import UsageError
from ..config import TEXT_PARTS, check_sizes, text_parts
from . import deepseek, foreign, gridless, indexers, masks, own, pooled
from .base import Reading, Target
from .fields import Fields

SUSPICIOUS = re.compile(
    r"chunk|block|stride|compress|pool|window|segment|landmark|patch|group_size|mem_freq|budget|topk|sparse|ratio",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Family:
    """One family of models and how its configs are read.

    Attributes:
        name: what people call it.
        types: the model types of its text part; the first one is its own.
        read: from the text part's fields to layers and grids.
        fields: the config's fields that make the grid, older names included.
        example: a config as released, or as `transformers` has it by default; the documentation's row comes from it.
        marks: fields of which one must be given as well, where the type alone is that of a dense model.
    """

    name: str
    types: tuple[str, ...]
    read: Callable[[Fields], Reading]
    fields: str = ""
    example: Mapping[str, Any] | None = None
    marks: tuple[str, ...] = ()


HOLDER = (
    f"no {', '.join(TEXT_PARTS)} with a model_type in this config: a model of several kinds of input is read by the "
    "language model that it holds"
)
V4_FLASH = [0, 0, *[4, 128] * 20, 4, 0]
V41_FLASH = [0, 0, *[2] * 18, *[1] * 20]
QWEN4_INDEXER = {"indexer_n_heads": 32, "indexer_kv_heads": 1, "indexer_head_dim": 128}
SPARSE_MINICPM = {"kernel_size": 32, "kernel_stride": 16, "block_size": 64, "topk": 64, "window_size": 2048}

FAMILIES: tuple[Family, ...] = (
    Family(
        "DeepSeek-V4",
        ("deepseek_v4",),
        deepseek.read_v4,
        "compress_rates, layer_types, sliding_window; older: compress_ratios, compress_rate_csa, compress_rate_hca",
        {"num_hidden_layers": 43, "compress_ratios": V4_FLASH, "sliding_window": 128, "index_topk": 512},
    ),
    Family(
        "DeepSeek-V4.1",
        ("deepseek_v41", "deepseek_v41_text"),
        deepseek.read_v41,
        "compress_ratios, sliding_window, kv_source_layer_ids, index_source_layer_ids, candidate_source_layer_id, "
        "candidate_block_size, candidate_topk_blocks",
        {
            "num_hidden_layers": 40,
            "compress_ratios": V41_FLASH,
            "sliding_window": 128,
            "kv_source_layer_ids": [2, 8, 14, 20],
            "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
            "candidate_source_layer_id": 20,
            "candidate_block_size": 8,
            "candidate_topk_blocks": 2048,
        },
    ),
    Family(
        "Qwen4-Exp",
        ("qwen4_exp", "qwen4_exp_text"),
        indexers.read_qwen4,
        "indexer_compress_ratio, indexer_budget, layer_types",
        {"num_hidden_layers": 40, **QWEN4_INDEXER, "indexer_budget": 2048, "indexer_compress_ratio": 4},
    ),
    Family(
        "GLM5-Next",
        ("glm5_next", "glm5_next_text"),
        indexers.read_glm5_next,
        "index_kpool, index_kpool_always_select_tail, index_topk, layer_types",
        {
            "num_hidden_layers": 48,
            "index_kpool": 4,
            "index_topk": 2048,
            "index_kpool_always_select_tail": True,
        },
    ),
    Family(
        "MiniMax-M3",
        ("minimax_m3_vl", "minimax_m3_vl_text"),
        indexers.read_minimax_m3,
        "index_block_size, index_topk_blocks, index_local_blocks, layer_types; older: sparse_attention_config."
        "{sparse_block_size, sparse_topk_blocks, sparse_local_block, sparse_attention_freq}",
        {
            "num_hidden_layers": 60,
            "layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57,
            "index_block_size": 128,
            "index_topk_blocks": 16,
            "index_local_blocks": 1,
        },
    ),
    Family(
        "Llama 4",
        ("llama4", "llama4_text"),
        masks.read_llama4,
        "attention_chunk_size, no_rope_layers, no_rope_layer_interval, layer_types",
        {"num_hidden_layers": 48, "attention_chunk_size": 8192, "no_rope_layer_interval": 4},
    ),
    Family(
        "BigBird",
        ("big_bird", "bigbird_pegasus"),
        masks.read_big_bird,
        "attention_type, block_size, num_random_blocks",
        {"num_hidden_layers": 12, "attention_type": "block_sparse", "block_size": 64, "num_random_blocks": 3},
    ),
    Family(
        "LongT5",
        ("longt5",),
        pooled.read_longt5,
        "encoder_attention_type, global_block_size, local_radius",
        {
            "num_layers": 12,
            "encoder_attention_type": "transient-global",
            "global_block_size": 16,
            "local_radius": 127,
        },
    ),
    Family(
        "PEGASUS-X",
        ("pegasus_x",),
        masks.read_pegasus_x,
        "block_size, stagger_local_blocks",
        {"encoder_layers": 16, "block_size": 512, "stagger_local_blocks": True},
    ),
    Family(
        "Reformer",
        ("reformer",),
        masks.read_reformer,
        "attn_layers, local_attn_chunk_length, lsh_attn_chunk_length",
        {
            "attn_layers": ["local", "lsh"] * 3,
            "local_attn_chunk_length": 64,
            "lsh_attn_chunk_length": 64,
        },
    ),
    Family(
        "Funnel",
        ("funnel",),
        pooled.read_funnel,
        "block_sizes, pooling_type, separate_cls, truncate_seq",
        {"block_sizes": [4, 4, 4], "pooling_type": "mean", "separate_cls": True, "truncate_seq": True},
    ),
    Family(
        "CANINE",
        ("canine",),
        pooled.read_canine,
        "downsampling_rate, local_transformer_stride",
        {"num_hidden_layers": 12, "downsampling_rate": 4, "local_transformer_stride": 128},
    ),
    Family(
        "Nyströmformer",
        ("nystromformer",),
        pooled.read_nystromformer,
        "segment_means_seq_len, num_landmarks",
        {"num_hidden_layers": 12, "segment_means_seq_len": 512, "num_landmarks": 64},
    ),
    Family(
        "MRA",
        ("mra",),
        pooled.read_mra,
        "approx_mode, block_per_row, max_position_embeddings",
        {"num_hidden_layers": 12, "approx_mode": "full", "block_per_row": 4, "max_position_embeddings": 512},
    ),
    Family(
        "BLT",
        ("blt",),
        pooled.read_blt,
        "patching_mode, patch_in_forward, max_patch_length",
        {"patching_mode": "entropy", "patch_in_forward": True, "global_config": {"num_hidden_layers": 25}},
    ),
    Family(
        "NSA (fla)",
        ("nsa",),
        foreign.read_nsa,
        "block_size, block_counts, window_size",
        {"num_hidden_layers": 24, "block_size": 64, "block_counts": 16, "window_size": 512},
    ),
    Family(
        "MoBA (fla)",
        ("moba",),
        foreign.read_moba,
        "moba_chunk_size, moba_topk",
        {"num_hidden_layers": 24, "moba_chunk_size": 256, "moba_topk": 4},
    ),
    Family(
        "MiniCPM4 (InfLLM-v2)",
        ("minicpm", "minicpm_sala"),
        foreign.read_minicpm,
        "sparse_config.{kernel_size, kernel_stride, block_size, topk, window_size, dense_len}, mixer_types",
        {"num_hidden_layers": 32, "sparse_config": {**SPARSE_MINICPM, "init_blocks": 1, "dense_len": 8192}},
    ),
    Family(
        "SeerAttention",
        foreign.DECODER_TYPES,
        foreign.read_seerattention,
        "seerattn_gate_block_size, seerattn_sparsity_method, seerattn_token_budget",
        {
            "num_hidden_layers": 28,
            "seerattn_gate_block_size": 64,
            "seerattn_sparsity_method": "token_budget",
            "seerattn_token_budget": 2048,
        },
        ("seerattn_gate_block_size",),
    ),
    Family(
        "Activation Beacon",
        foreign.DECODER_TYPES,
        foreign.read_beacon,
        "beacon_window, beacon_stride, beacon_ratio",
        {
            "num_hidden_layers": 28,
            "beacon_window": 1024,
            "beacon_stride": 1024,
            "beacon_ratio": [2, 4, 8, 16, 32],
        },
        ("beacon_window", "beacon_stride"),
    ),
    Family(
        "Landmark attention",
        ("llama_with_landmark",),
        foreign.read_landmark,
        "mem_freq",
        {"num_hidden_layers": 32, "mem_freq": 50},
    ),
    Family(
        "phasescope's compressed Qwen3",
        ("phasescope_qwen3",),
        own.read_own,
        "compression.{compressor, width, stride, shift, tail}",
        {
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
            "compression": {"compressor": "scalar_gate", "width": 8, "stride": 4, "shift": 0, "tail": 0},
        },
    ),
    Family(
        "token-level top-k", gridless.TOKEN_TOPK, gridless.read_token_topk, "index_topk", {"index_topk": 2048}
    ),
    Family("Doge", ("doge",), gridless.read_doge, "keep_window_size", {"keep_window_size": 2048}),
    Family("Step-3.7", gridless.STEP, gridless.read_step3p7, "(MiniMax-M3's, not read)", {}),
    Family("recurrences", gridless.RECURRENT, gridless.read_recurrent, ", ".join(gridless.CHUNK_FIELDS), {}),
    Family("short convolutions", gridless.CONVOLUTION, gridless.read_convolution, "", {}),
    Family("exact bands", gridless.BAND, gridless.read_band, "attention_window", {}),
    Family("mixers", ("fnet", "yoso", "perceiver"), gridless.read_mixing, "", {}),
    Family("dense", gridless.DENSE, gridless.read_dense, "sliding_window", {}),
)


def read_config(config: Mapping[str, Any], *, source: str = "config", own_code: bool = True) -> Target:
    """The target that a config describes.

    The text part of a model of several kinds of input is looked for under the names in use; the innermost part whose
    model type a family knows is read, with the outer fields where it has none of its own.

    Args:
        config: the fields of a config.json.
        source: what error messages and the target call it.
        own_code: the checkpoint runs under code that it brings along or that a package of its own provides. False for
            a model that `transformers` itself has loaded: fields of such code are then read by nobody.

    Raises:
        UsageError: if the config has no model type, or a field of a known family cannot be meant.
    """
    kinds, fields = _text_part(config, source)
    for depth, kind in enumerate(kinds):
        family = _family(kind, fields, own_code)
        # What holds an unknown text part is no evidence that the part is dense.
        if family is not None and (depth == 0 or family.read is not gridless.read_dense):
            return _target(kind, family, fields)
    notes = [HOLDER] if len(kinds) == 1 else []
    if "auto_map" in config:
        notes.insert(0, f"{source} brings code of its own (auto_map), which is never run here")
    return Target(kinds[0], "", notes=tuple(notes), suspicious=tuple(_suspicious(config)), source=source)


def _text_part(config: Mapping[str, Any], source: str) -> tuple[list[str], Fields]:
    """The model types from the innermost text part outwards, and that part's fields with all outer ones behind them."""
    if not isinstance(config, Mapping):
        raise UsageError(
            f"{source} holds {type(config).__name__}, not an object of fields; give a model's config.json"
        )
    kinds = [config.get("model_type")]
    if not isinstance(kinds[0], str) or not kinds[0]:
        raise UsageError(f"{source} has no model_type; give the config.json of a checkpoint")
    check_sizes(config, source)
    fields: dict[str, Any] = {}
    for depth, part in enumerate(text_parts(config)):
        if depth and isinstance(part.get("model_type"), str):
            kinds.insert(0, part["model_type"])
        fields |= {name: value for name, value in part.items() if name not in TEXT_PARTS}
    return [str(kind) for kind in kinds], Fields(fields, source)


def _family(kind: str, fields: Fields, own_code: bool) -> Family | None:
    for family in FAMILIES:
        if kind in family.types:
            if not family.marks:
                return family
            if own_code and any(mark in fields for mark in family.marks):
                return family
    return None


def _target(kind: str, family: Family, fields: Fields) -> Target:
    reading = family.read(fields)
    without = reading.without if not any(layer.folds for layer in reading.layers) else ""
    notes = reading.notes
    if fields.assumed:
        notes = (
            *notes,
            f"not in this config, so transformers' default is taken: {'; '.join(dict.fromkeys(fields.assumed))}",
        )
    target = Target(kind, family.name, reading.layers, without, notes, (), fields.source, reading.holes)
    return target if target.folds or without else replace(target, without="dense attention")


def _suspicious(config: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Fields that sound like a grid, one level into nested parts."""
    found = []
    for name, value in config.items():
        if isinstance(value, dict):
            if not prefix:
                found += _suspicious(value, f"{name}.")
        elif SUSPICIOUS.search(str(name)) and value not in (None, False):
            text = repr(value)
            found.append(f"{prefix}{name} = {text if len(text) <= 40 else text[:37] + '...'}")
    return found[:40]
