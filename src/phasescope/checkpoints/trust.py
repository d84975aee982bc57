"""What a checkpoint's folder may make the libraries read or run: the one place that every loader passes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError, plain
from .safetensors import Weights

PLAIN_NAME = re.compile(r"[a-z0-9_]{1,40}")
"""An implementation that a library has: eager, sdpa, flash_attention_2, grouped_mm. Others name code to fetch."""
MOST_NESTED = 8


def refuse_untrusted(folder: Path, config: Mapping[str, Any], *, trusted: bool = False) -> None:
    """Refuse a folder that would have pickles, files from elsewhere, or code read or run.

    - Weights are safetensors in the folder itself: an index may name no other file, whatever lies beside it.
    - An adapter (`adapter_config.json`) makes `transformers` load its base model and its weights, which may be pickles.
    - An implementation of attention or experts that is no library's own (`"_attn_implementation": "owner/repo"`), and
      `use_kernels`, make it fetch and run native code, though only local files are asked for.

    Python of the checkpoint's own (`auto_map`, `custom_generate`) is left out by `trust_remote_code=False`.

    Args:
        folder: the checkpoint.
        config: its config.json.
        trusted: code that the checkpoint names may run. Pickles and files from elsewhere are refused all the same.

    Raises:
        UsageError: naming what is refused, and what to do.
    """
    for tensor, file in Weights(folder).files.items():
        if file.suffix != ".safetensors":
            raise UsageError(
                f"{folder} keeps {plain(tensor)[:80]} in {plain(file.name)[:80]}, which may be a pickle; only "
                "safetensors are loaded: save the model anew with save_pretrained"
            )
    if (folder / "adapter_config.json").exists():
        raise UsageError(
            f"{folder} holds an adapter, which would load another model's weights; merge it into its model "
            "(merge_and_unload of peft) and save that"
        )
    if trusted:
        return
    for name, value in _named(config):
        if name.endswith("_implementation") or name.endswith("_implementation_internal"):
            named = value.values() if isinstance(value, dict) else [value]
            foreign = [one for one in named if one is not None and not _is_plain(one)]
        else:
            foreign = [value] if name in ("use_kernels", "kernel_config") and value else []
        if foreign:
            raise UsageError(
                f"{folder / 'config.json'} names code to fetch: {plain(name)[:40]} is {plain(repr(foreign[0]))[:80]}; "
                "remove the field, or run such code with --trust-remote-code"
            )


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and PLAIN_NAME.fullmatch(value) is not None


def _named(config: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Every field with its name, also of parts."""
    for name, value in config.items():
        yield str(name), value
        if isinstance(value, dict) and depth < MOST_NESTED:
            yield from _named(value, depth + 1)
