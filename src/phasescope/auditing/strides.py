"""At which strides a benchmark is looked at."""

from __future__ import annotations

from pathlib import Path

from ..checkpoints.grids import read_target
from ..errors import UsageError


def strides_of_model(model: str | Path) -> tuple[int, ...]:
    """The strides of at least 2 at which a model's configuration says that it folds its cache.

    Raises:
        UsageError: if there is no configuration, or it names no stride.
    """
    found = read_target(model).strides
    if not found:
        raise UsageError(
            f"{model} names no stride that is known; a model without a grid has no phases, and for any other "
            "give --stride"
        )
    return found
