"""Say which token grids a checkpoint has."""

from __future__ import annotations

from pathlib import Path

from ..checkpoints.grids import Target, read_target


def inspect(model: str | Path) -> Target:
    """Which grids a checkpoint has: strides, what they do, from where they matter, and which tokens stay unread.

    Args:
        model: a zoo name, a checkpoint's folder, a config.json, or `owner/name` on the hub.

    Raises:
        UnknownNameError: if the model is none of these.
        UsageError: if there is no config to be found or read.
    """
    return read_target(model)
