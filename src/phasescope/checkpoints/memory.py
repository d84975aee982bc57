"""How much memory a local model takes, from its config.json and the headers of its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import load_config, text_part
from .safetensors import Weights

BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
FLOATS = {"F64", "F32", "F16", "BF16"}
DTYPES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a model, as far as its folder tells; None where it doesn't.

    Attributes:
        weights: of all tensors, in the dtype they are loaded in.
        cache: of the uncompressed KV cache of one longest prompt; a compressed cache takes less.
        peak: of all caches that are held at once, at most.
    """

    weights: int | None
    cache: int | None
    peak: int | None

    @property
    def total(self) -> int | None:
        """Weights and caches."""
        return None if self.weights is None or self.peak is None else self.weights + self.peak


UNKNOWN = Memory(None, None, None)


def folder_memory(folder: Path, *, dtype: str, longest: int, max_tokens: int, rows: int = 2**60) -> Memory:
    """Memory of the model in a folder.

    Args:
        folder: holds config.json and *.safetensors.
        dtype: in which it is loaded; `auto` for its own.
        longest: tokens of the longest prompt.
        max_tokens: of one forward, over all its rows; see `TransformersBackend`.
        rows: the most rows that there are to hold: contexts and questions of one batch.

    Raises:
        UsageError: if a file of weights is damaged.
        BrokenRecordError: if the config is.
    """
    tensors = [(tensor.dtype, math.prod(tensor.shape)) for tensor in Weights(folder).every()]
    if not tensors:
        return UNKNOWN
    config = load_config(folder, weights=True, trusted=True)  # nothing is run
    loaded = DTYPES.get(dtype)
    weights = sum(
        numel * (loaded if loaded is not None and kind in FLOATS else BYTES.get(kind, 1))
        for kind, numel in tensors
    )
    # Of the common dtypes the one that holds most weights is what keys and values come in.
    own = max(FLOATS, key=lambda kind: sum(numel for held, numel in tensors if held == kind))
    per_token = cache_bytes(config, loaded or BYTES[own])
    if per_token is None:
        return Memory(weights, None, None)
    full, sliding, window = per_token
    one = full * longest + sliding * min(longest, window)
    return Memory(weights, one, min(rows, math.ceil(2 * max(max_tokens, longest) / longest)) * one)


def cache_bytes(config: Mapping[str, Any], itemsize: int) -> tuple[int, int, int] | None:
    """Bytes of the uncompressed KV cache per token: in layers that see everything, in sliding ones, and their window.

    Heads with a low-rank cache (multi-head latent attention) are counted as `transformers` keeps them, unfolded.
    """
    text = text_part(config)

    def number(*names: str) -> int | None:
        found = [text[name] for name in names if isinstance(text.get(name), int)]
        return found[0] if found else None

    layers, heads = number("num_hidden_layers", "n_layer"), number("num_attention_heads", "n_head")
    width = number("hidden_size", "n_embd")
    if not layers or not heads or not width:
        return None
    channels = 2 * (number("head_dim") or width // heads)
    groups = number("num_key_value_heads") or heads
    if number("kv_lora_rank") and number("v_head_dim"):
        keys = number("qk_head_dim") or (number("qk_nope_head_dim") or 0) + (number("qk_rope_head_dim") or 0)
        channels, groups = keys + (number("v_head_dim") or 0), heads
    kinds = text.get("layer_types")
    kinds = kinds if isinstance(kinds, list) and len(kinds) == layers else ["full_attention"] * layers
    window = number("sliding_window") or 0
    sliding = sum("sliding" in str(kind) for kind in kinds) if window else 0
    each = channels * groups * itemsize
    return each * (layers - sliding), each * sliding, window
