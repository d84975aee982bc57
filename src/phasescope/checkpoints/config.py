"""A checkpoint's config.json, bounded before any library builds a model from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BrokenRecordError, UsageError, plain
from ..files import read_json
from .safetensors import Weights
from .trust import refuse_untrusted

MOST_BYTES = 16 * 2**20
"""Of a config.json: real ones have a few thousand."""
TEXT_PARTS = ("text_config", "thinker_config", "llm_config", "language_config")
"""Where models of several kinds of input keep the settings of the one that reads text."""
MOST_NESTED = 4
"""Levels of such parts."""
SIZES = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers"), (1, 4096)),
    **dict.fromkeys(("hidden_size", "n_embd"), (1, 2**18)),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_key_value_heads", "head_dim"), (1, 2**14)),
    **dict.fromkeys(("intermediate_size", "vocab_size"), (1, 2**24)),
    "max_position_embeddings": (1, 2**40),
    "sliding_window": (0, 2**40),
}
"""The smallest and the largest number that a field can be meant to have. Null and lists, one number per layer, are left
to the model's own class."""
LAYER = re.compile(r"(?:^|\.)(?:layers|layer|blocks|block|h)\.(\d{1,6})\.")


def load_config(folder: Path, *, weights: bool = False, trusted: bool = False) -> dict[str, Any]:
    """The config of a checkpoint's folder, with its sizes within what a model can have.

    Args:
        folder: the checkpoint.
        weights: for who loads them: compare it with their headers, and refuse what may not be read or run; see
            `refuse_unheld` and `refuse_untrusted`.
        trusted: code that the checkpoint names may run.

    Raises:
        UsageError: if there is none, a size is out of range, or its weights hold less than it claims.
        BrokenRecordError: if it is no JSON object, or too large a file.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise UsageError(f"{folder} holds no config.json; give a checkpoint's folder")
    config = read_json(path, MOST_BYTES, finite=False)
    if not isinstance(config, dict):
        raise BrokenRecordError(f"{path} holds no model's settings; copy it again")
    check_sizes(config, str(path))
    if weights:
        refuse_untrusted(folder, config, trusted=trusted)
        refuse_unheld(config, folder)
    return config


def check_sizes(config: Mapping[str, Any], source: str) -> None:
    """Refuse sizes that no model can have, before anything is built or counted by them.

    Args:
        config: the fields of a config.json; its parts that read text are checked too.
        source: what the error calls it.

    Raises:
        UsageError: naming the field, its value and its range.
    """
    for part in text_parts(config):
        for name, (least, most) in SIZES.items():
            value = part.get(name)
            if value is None or isinstance(value, list):
                continue
            if name == "head_dim" and part.get("qk_rope_head_dim") is not None:
                least = 0  # there it counts rotated channels alone
            if not isinstance(value, int | float) or not least <= value <= most:
                raise UsageError(
                    f"{source}: {name} is {plain(repr(value))}; a model has {least} to {most:,}; copy the config again"
                )


def refuse_unheld(config: Mapping[str, Any], folder: Path) -> None:
    """Refuse a config that claims more layers or parameters than the weights beside it hold.

    Only headers are read. A parameter takes at least one bit, so that no quantised checkpoint is refused. A folder
    without weights holds nothing to compare with.

    Raises:
        UsageError: for such a config, or damaged weights.
    """
    files = Weights(folder)
    tensors = list(files.every())
    if not tensors:
        return
    text = text_part(config)

    def size(*names: str) -> int:
        return next((int(text[name]) for name in names if isinstance(text.get(name), int | float)), 0)

    layers, width = size("num_hidden_layers", "n_layer", "num_layers"), size("hidden_size", "n_embd")
    held = max((int(found[1]) + 1 for name in files.files if (found := LAYER.search(name))), default=layers)
    if layers > held:
        raise UsageError(
            f"{folder / 'config.json'} says {layers:,} layers, and the weights beside it hold {held:,}; "
            "copy config and weights of the same checkpoint"
        )
    heads = size("num_attention_heads", "n_head") * size("head_dim")
    least = width * (size("vocab_size") + layers * (width + heads + size("intermediate_size")))
    most = 8 * sum(tensor.end - tensor.start for tensor in tensors)
    if least > most:
        raise UsageError(
            f"{folder / 'config.json'} says at least {least:,} parameters, and the weights beside it have room for "
            f"{most:,} at most; copy config and weights of the same checkpoint"
        )


def text_parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The config and, one inside the other, its parts that read text; the innermost comes last."""
    parts = [config]
    while len(parts) <= MOST_NESTED:
        inner = [parts[-1][name] for name in TEXT_PARTS if isinstance(parts[-1].get(name), dict)]
        if not inner:
            break
        parts.append(inner[0])
    return parts


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the part that reads text: the config itself where it has no such part."""
    return text_parts(config)[:2][-1]
