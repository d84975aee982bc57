"""The strides around whose boundaries an engine is asked, from the model's own config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..records import read_json

ENGINE_STRIDES = (16, 64)
"""Pages and tiles of common engines: asked of every engine, as no config names them."""


def strides_of(folder: Path) -> tuple[int, ...]:
    """The strides of a checkpoint's grids.

    Raises:
        UsageError: if the folder has no config.json.
        BrokenRecordError: if it is not JSON.
    """
    return config_strides(read_json(folder / "config.json"))


def config_strides(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The strides that a config names: ours, and DeepSeek-V4's under its old and its new field."""
    found = []
    compression = config.get("compression")
    if isinstance(compression, Mapping):
        found.append(compression.get("stride"))
    rates = config.get("compress_rates")
    if isinstance(rates, Mapping):
        found += list(rates.values())
    ratios = config.get("compress_ratios")
    if isinstance(ratios, list):
        found += ratios
    found += [config.get(name) for name in ("compress_rate_csa", "compress_rate_hca")]
    return tuple(sorted({rate for rate in found if isinstance(rate, int) and rate > 1}))
