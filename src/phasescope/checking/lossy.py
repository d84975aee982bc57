"""Caches that are lossy by design: what must then differ, and what still must not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..checkpoints.grids.techniques import technique
from .invariances import INVARIANCES, Invariance, longer, read_parts

KINDS = ("quantised", "evicting", "sparse")
"""What reads back less than was read: rounded entries, fewer entries, or, in a prefill, fewer pairs of tokens."""

READ_BACK = frozenset({"parts", "chunks", "steps", "decode", "crop", "reorder", "speculation"})
"""Ways whose tokens read the cache where those of one piece read each other."""

OF_FOLDS = {"quantisation": "quantised", "eviction": "evicting", "selection": "evicting", "mask": "sparse"}


def kind_of(lossy: str | None) -> str:
    """How a technique loses: its own kind, or what its grids are of.

    Raises:
        UnknownNameError: if there is no such technique.
    """
    if lossy is None or lossy in KINDS:
        return lossy or ""
    folds = technique(lossy).folds
    return OF_FOLDS.get(folds[0].does, "evicting") if folds else "evicting"


def must_differ(lossy: str | None) -> frozenset[str]:
    """The invariances that such an engine breaks by design."""
    if lossy is None:
        return frozenset()
    return READ_BACK | {"prefill"} if kind_of(lossy) == "sparse" else READ_BACK


def invariances(lossy: str | None) -> Mapping[str, Invariance]:
    """The table for an engine: what is read from a cache is compared with what is read from one likewise.

    A batch is compared in its first token only, as later ones read the cache, where pads may move groups.
    """
    if lossy is None:
        return INVARIANCES
    cached = {
        name: replace(INVARIANCES[name], reference=read_parts, base=None, base_read=None, thirds=())
        for name in ("prefix", "restore")
    }
    batch = replace(INVARIANCES["batch"], new=lambda new: 1, thirds=(longer,))
    return {**INVARIANCES, **cached, "batch": batch}
