"""A checkpoint's config.json, bounded before any library builds a model from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BrokenRecordError, UsageError
from ..files import read_json

MOST_BYTES = 16 * 2**20
"""Of a config.json: real ones have a few thousand."""
TEXT_PARTS = ("text_config", "thinker_config", "llm_config", "language_config")
"""Where models of several kinds of input keep the settings of the one that reads text."""
MOST = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), 4096),
    **dict.fromkeys(("hidden_size", "n_embd"), 2**18),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_key_value_heads", "head_dim"), 2**14),
    **dict.fromkeys(("intermediate_size", "vocab_size"), 2**24),
    **dict.fromkeys(("max_position_embeddings", "sliding_window"), 2**40),
}
"""The largest number that a field can be meant to have; the least is 1. Fields that hold no number are left to the
model's own class."""
ZERO = ("sliding_window",)
"""Fields that may be 0, for none."""


def load_config(folder: Path) -> dict[str, Any]:
    """The config of a checkpoint's folder, with its sizes within what a model can have.

    Raises:
        UsageError: if there is none.
        BrokenRecordError: if it is no JSON object, too large a file, or a size is out of range.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise UsageError(f"{folder} holds no config.json; give a checkpoint's folder")
    config = read_json(path, MOST_BYTES, finite=False)
    if not isinstance(config, dict):
        raise BrokenRecordError(f"{path} holds no model's settings; copy it again")
    for part in (config, text_part(config)):
        for name, most in MOST.items():
            value = part.get(name)
            if isinstance(value, int | float) and not (name not in ZERO) <= value <= most:
                raise BrokenRecordError(
                    f"{path}: {name} is {value:.6g}; a model has 1 to {most:,}; copy the config again"
                )
    return config


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the part that reads text: the config itself where it has no such part."""
    parts = [config[name] for name in TEXT_PARTS if isinstance(config.get(name), dict)]
    return parts[0] if parts else config
