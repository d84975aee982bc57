"""What is taken away: query heads of layers, whole or one branch of what they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import UsageError

Branch = Literal["all", "entries", "local"]
Mode = Literal["mean", "zero", "resample"]
BASE = "none"
"""Name of the condition from which nothing is taken."""
Where = Literal["last", "everywhere"]


@dataclass(frozen=True, slots=True)
class Part:
    """Query heads of one layer.

    Attributes:
        layer: counted from 0.
        queries: query heads, counted from 0.
        branch: everything that they read, its entries alone, or its uncompressed tokens alone.
    """

    layer: int
    queries: tuple[int, ...]
    branch: Branch = "all"


@dataclass(frozen=True, slots=True)
class Unit:
    """What one ablation takes away at once.

    Attributes:
        name: L1.H0 (layer 1, KV head 0), L1.Q3 (query head 3), L1.entries, or several joined by +.
        parts: at least one; several layers only where the branch is everything.
    """

    name: str
    parts: tuple[Part, ...]

    @property
    def lowest(self) -> int:
        """The layer from which on a forward differs."""
        return min(part.layer for part in self.parts)


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads of one attention layer.

    Attributes:
        layer: counted from 0 over the layers that can be taken apart.
        queries: query heads.
        kv_heads: KV heads that they share evenly.
        branches: whether its entries and its uncompressed tokens can be separated.
    """

    layer: int
    queries: int
    kv_heads: int
    branches: bool

    def group(self, head: int) -> tuple[int, ...]:
        """The query heads that read a KV head."""
        size = self.queries // self.kv_heads
        return tuple(range(head * size, (head + 1) * size))


def every_head(shapes: Sequence[Shape], branch: Branch = "all") -> list[Unit]:
    """One unit per KV head; where a layer has a single one, its query heads and its compressed branch.

    A layer with one KV head that several query heads share is one unit as a KV head too, so that layers with one
    and with several KV heads are named alike.

    Raises:
        UsageError: if a branch is asked for that no layer has.
    """
    if branch != "all" and not any(shape.branches for shape in shapes):
        raise UsageError(
            f"branch {branch!r}: this model's cache has no entries beside its tokens; take 'all'"
        )
    units = []
    for shape in shapes:
        if branch != "all" and not shape.branches:
            continue
        tail = "" if branch == "all" else f" {branch}"
        for head in range(shape.kv_heads):
            units.append(
                Unit(f"L{shape.layer}.H{head}{tail}", (Part(shape.layer, shape.group(head), branch),))
            )
    return units


def latent_heads(shapes: Sequence[Shape]) -> list[Unit]:
    """For layers whose single KV head is everything: each query head, and the compressed branch of all."""
    units = []
    for shape in shapes:
        units += [
            Unit(f"L{shape.layer}.Q{query}", (Part(shape.layer, (query,)),)) for query in range(shape.queries)
        ]
        if shape.branches:
            queries = tuple(range(shape.queries))
            units.append(Unit(f"L{shape.layer}.entries", (Part(shape.layer, queries, "entries"),)))
    return units


def together(names: str, known: Sequence[Unit]) -> Unit:
    """Several units as one, from their names joined by +.

    Raises:
        UsageError: for a name that is not known, or branches of several layers.
    """
    by_name = {unit.name: unit for unit in known}
    chosen = []
    for name in names.split("+"):
        if name.strip() not in by_name:
            raise UsageError(f"no head {name.strip()!r} in {names!r}; known: {', '.join(by_name)}")
        chosen.append(by_name[name.strip()])
    parts = tuple(part for unit in dict.fromkeys(chosen) for part in unit.parts)
    if len({part.layer for part in parts}) > 1 and any(part.branch != "all" for part in parts):
        raise UsageError(
            f"{names!r} joins branches of several layers; a branch is taken in one layer at a time"
        )
    return Unit("+".join(dict.fromkeys(unit.name for unit in chosen)), parts)
