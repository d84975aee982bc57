"""At which strides a benchmark is looked at."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..records import read_json

READER = f"{__package__.rpartition('.')[0]}.targets"
"""What knows every model's grids, where it is there."""
FIELDS = (
    "compress_rates",
    "compress_ratios",
    "compress_rate_csa",
    "compress_rate_hca",
    "indexer_compress_ratio",
)
"""Fields of DeepSeek-V4's, V4.1's and Qwen4-Exp's configurations that hold strides."""


def strides_of_model(model: str | Path) -> tuple[int, ...]:
    """The strides of at least 2 at which a model's configuration says that it folds its cache.

    Raises:
        UsageError: if there is no configuration, or it names no stride.
    """
    strides = _from_targets(model) if find_spec(READER) else _from_config(model)
    found = tuple(sorted({stride for stride in strides if stride > 1}))
    if not found:
        raise UsageError(
            f"{model} names no stride that is known; a model without a grid has no phases, and for any other "
            "give --stride"
        )
    return found


def _from_targets(model: str | Path) -> list[int]:
    """Strides of the grids that `targets` reads, for every family that it knows."""
    return [int(grid.stride) for grid in import_module(READER).read_target(model).grids]


def _from_config(model: str | Path) -> list[int]:
    """Strides of the few fields that are known without `targets`."""
    given = Path(model)
    config = read_json(given / "config.json" if given.is_dir() else given)
    if not isinstance(config, dict):
        raise UsageError(f"{model} holds no model configuration; give a checkpoint's folder")
    compression = config.get("compression")
    own = [compression.get("stride")] if isinstance(compression, dict) else []
    return [n for value in [*own, *map(config.get, FIELDS)] for n in _numbers(value)]


def _numbers(value: Any) -> list[int]:
    """Whole numbers in a number, a list or a dictionary."""
    if isinstance(value, dict):
        value = list(value.values())
    listed = value if isinstance(value, list) else [value]
    return [n for n in listed if isinstance(n, int) and not isinstance(n, bool)]
