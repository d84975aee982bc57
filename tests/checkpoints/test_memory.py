"""Bytes of weights and cache, from a folder alone, against the model itself."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from phasescope import UsageError
from phasescope.checkpoints import zoo
from phasescope.checkpoints.memory import UNKNOWN, cache_bytes, folder_memory

LLAMA = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, (32 * 8 * 128 * 2 * 2, 0, 0)),
        ({"text_config": LLAMA, "vision_config": {"hidden_size": 1}}, (32 * 8 * 128 * 2 * 2, 0, 0)),
        ({**LLAMA, "head_dim": 64}, (32 * 8 * 64 * 2 * 2, 0, 0)),
        ({"n_layer": 12, "n_head": 12, "n_embd": 768}, (12 * 768 * 2 * 2, 0, 0)),
        (
            {**LLAMA, "layer_types": ["sliding_attention", "full_attention"] * 16, "sliding_window": 512},
            (16 * 4096, 16 * 4096, 512),
        ),
        (
            {
                **LLAMA,
                "kv_lora_rank": 512,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
            },
            (32 * 32 * (128 + 64 + 128) * 2, 0, 0),
        ),
        ({"model_type": "unheard-of"}, None),
        ({**LLAMA, "num_hidden_layers": "many"}, None),
    ],
)
def test_a_token_of_cache_is_read_from_the_configuration(config: dict[str, Any], expected: Any) -> None:
    """Grouped heads, nested configurations, older names, sliding layers, latent attention; or unknown."""
    assert cache_bytes(config, 2) == expected


def test_a_folder_tells_weights_and_caches() -> None:
    """A zoo model: weights to the byte, and caches bounded by twice the tokens of a forward."""
    name = zoo.names()[0]
    folder, config = zoo.folder(name), json.loads((zoo.folder(name) / "config.json").read_text())
    memory = folder_memory(folder, dtype="auto", longest=100, max_tokens=1000)
    header = struct.unpack("<Q", (folder / "model.safetensors").read_bytes()[:8])[0]
    assert memory.weights == (folder / "model.safetensors").stat().st_size - 8 - header
    per_token = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"] * 4
    assert (memory.cache, memory.peak) == (100 * per_token, 2000 * per_token)
    half = folder_memory(folder, dtype="bfloat16", longest=100, max_tokens=1000)
    assert (half.weights, half.cache) == (memory.weights // 2, memory.cache // 2)
    long = folder_memory(folder, dtype="auto", longest=5000, max_tokens=1000)
    assert long.peak == 2 * 5000 * per_token
    few = folder_memory(folder, dtype="auto", longest=100, max_tokens=1000, rows=7)
    assert few.peak == 7 * 100 * per_token


def test_a_folder_without_weights_is_unknown(tmp_path: Path) -> None:
    """As a server's model is."""
    assert folder_memory(tmp_path, dtype="auto", longest=1, max_tokens=1) == UNKNOWN


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x05\x00",
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 5) + b"{nope",
        struct.pack("<Q", 24) + b'{"x": {"dtype": "F32"} }',
        struct.pack("<Q", 37) + b'{"x": {"dtype": "F32", "shape": "ab"}}',
        struct.pack("<Q", 20000) + b"[" * 20000,
    ],
)
def test_a_damaged_header_is_one_line(tmp_path: Path, content: bytes) -> None:
    """Empty, cut, absurdly large, of another kind, or nested too deeply."""
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=r"model\.safetensors") as caught:
        folder_memory(tmp_path, dtype="auto", longest=1, max_tokens=1)
    assert "\n" not in str(caught.value)
