"""What a checkpoint does to its context on a token grid: layers, the grids they fold on, and what follows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, Literal

from ...grid import NEVER, WindowGrid

Does = Literal["pooled content", "selection", "eviction", "mask", "quantisation"]
Anchor = Literal["slot", "position", "first real token", "content"]
Status = Literal["grid", "content", "none", "unknown"]


@dataclass(frozen=True, slots=True)
class Fold:
    """One grid on which a layer folds its context.

    Attributes:
        does: what happens to the tokens of one window together: their content is pooled into an entry, they are
            selected or evicted as one, a mask ends at their border, or they share a quantisation group.
        grid: the windows; None where they follow the content of the tokens.
        anchor: from where windows are counted: the cache's slots (left padding moves the grid), positions, the
            first real token (left padding does not), or the content.
        reach: tokens of context up to which no retrieval needs this grid; None where the config does not say.
        exact: True where up to `reach` tokens nothing whatever depends on the grid. False where its entries are
            read beside the uncompressed tokens from the first complete window on.
        learned: the pooling has weights of its own.
        tail: the tokens of the window that is not complete are always read; None where there is no such window.
        raw: how many of the newest tokens are read uncompressed as well, the query's own included; None for all that
            wait.
        bias: the pooling has a position bias, so that slot weights can be read from the weights.
    """

    does: Does
    grid: WindowGrid | None
    anchor: Anchor
    reach: int | None
    exact: bool = True
    learned: bool = False
    tail: bool | None = None
    raw: int | None = None
    bias: bool = False

    @property
    def unread(self) -> int:
        """The most tokens that wait for their entry and are not read uncompressed meanwhile; `NEVER` with gaps."""
        if self.does != "pooled content" or self.grid is None or self.raw is None:
            return 0
        wait = self.grid.longest_wait()
        return wait if wait == NEVER else max(0, wait - self.raw)

    def describe(self) -> dict[str, Any]:
        """As JSON has it."""
        windows = (
            {} if self.grid is None else {n: getattr(self.grid, n) for n in ("width", "stride", "shift")}
        )
        facts = ("does", "anchor", "reach", "exact", "learned", "tail", "raw", "bias")
        return {**windows, **{name: getattr(self, name) for name in facts}}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its kind in the checkpoint's own words, and its grids (none, one or several)."""

    index: int
    kind: str
    folds: tuple[Fold, ...] = ()


@dataclass(frozen=True, slots=True)
class Hole:
    """Tokens of the context that some layers cannot read at all.

    Attributes:
        layers: the layers.
        why: which tokens, and what would leave none unread.
    """

    layers: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a family's reader finds in a config.

    Attributes:
        layers: one by one; empty for a model whose layers are all alike and have no grid.
        without: why there is no grid, where there is none.
        notes: what a user should know.
        holes: unread tokens that do not follow from the folds alone.
    """

    layers: tuple[Layer, ...] = ()
    without: str = ""
    notes: tuple[str, ...] = ()
    holes: tuple[Hole, ...] = ()


@dataclass(frozen=True)
class Target:
    """Which grids a checkpoint has.

    Attributes:
        model_type: as its config says.
        family: name of the family that read it; empty where none knows the type.
        layers: the layers in their order; empty where all are alike and have no grid, or nothing is known.
        without: why it has no grid.
        notes: what a user should know.
        suspicious: for an unknown type, the config's fields that sound like a grid, as `name = value`.
        source: where the config was read.
    """

    model_type: str
    family: str
    layers: tuple[Layer, ...] = ()
    without: str = ""
    notes: tuple[str, ...] = ()
    suspicious: tuple[str, ...] = ()
    source: str = ""
    lost: tuple[Hole, ...] = field(default=(), repr=False)

    @cached_property
    def folds(self) -> tuple[Fold, ...]:
        """The distinct grids and what they do, in the order of the layers."""
        return tuple(dict.fromkeys(fold for layer in self.layers for fold in layer.folds))

    @cached_property
    def grids(self) -> tuple[WindowGrid, ...]:
        """The distinct window grids of more than one token's stride; mean and longest where content ends windows."""
        every = (fold.grid for fold in self.folds)
        return tuple(dict.fromkeys(grid for grid in every if grid is not None and grid.stride > 1))

    @property
    def status(self) -> Status:
        """Whether it has a grid, windows that follow content, neither, or is not known."""
        if not self.family:
            return "unknown"
        if any(fold.anchor != "content" and fold.grid in self.grids for fold in self.folds):
            return "grid"
        return "content" if any(fold.anchor == "content" for fold in self.folds) else "none"

    @property
    def control(self) -> bool:
        """Known to have no grid: phase cannot matter, and a measured effect would speak against the measurement."""
        return self.status == "none"

    @property
    def known_grids(self) -> list[WindowGrid] | None:
        """As a backend describes them: none for a model without a grid, None where there is no saying."""
        return list(self.grids) if self.grids or self.control else None

    @property
    def strides(self) -> tuple[int, ...]:
        """The distinct strides, smallest first."""
        return tuple(sorted({grid.stride for grid in self.grids}))

    @property
    def period(self) -> int | None:
        """The least common multiple of the strides: after so many tokens all grids repeat together."""
        return math.lcm(*self.strides) if self.strides else None

    @property
    def reach(self) -> int | None:
        """The smallest reach of all grids; None without a grid, or where none is known."""
        known = [fold.reach for fold in self.folds if fold.reach is not None]
        return min(known) if known else None

    @cached_property
    def holes(self) -> tuple[Hole, ...]:
        """Tokens that some layers cannot read: those that wait for an entry longer than they are read uncompressed.

        A token waits `grid.longest_wait()` tokens at most; with a sliding window of n tokens, the query's own included,
        the last wait − n of them are read nowhere in that layer.

        Differs: the rule of thumb "stride larger than the sliding window" is strict by one token; a stride of n + 1
            leaves no hole, as at most n tokens wait.
        """
        found = []
        for fold in self.folds:
            if fold.unread:
                layers = tuple(layer.index for layer in self.layers if fold in layer.folds)
                found.append(Hole(layers, _unread(fold)))
        return (*found, *self.lost)

    @property
    def verdict(self) -> str:
        """The one line that comes first."""
        if self.status == "unknown":
            return f"unknown: no family knows model type {self.model_type!r}; it may or may not have a token grid"
        if self.status == "none":
            return f"no token grid: a negative control ({self.without or 'dense attention'})"
        if self.status == "content":
            return "windows follow the content of the tokens: no fixed stride, so no fixed phase"
        beyond = "" if not self.reach else f" beyond {self.reach:,} tokens"
        does = list(dict.fromkeys(fold.does for fold in self.folds if fold.grid is not None))
        only = "" if "pooled content" in does else f" ({' and '.join(does)} only)"
        strides = [f"{stride:,}" for stride in self.strides]
        if len(strides) == 1:
            return f"phase-sensitive by construction{beyond}: stride {strides[0]}{only}"
        return (
            f"phase-sensitive by construction{beyond}: strides {', '.join(strides[:-1])} and {strides[-1]}; "
            f"joint period {self.period:,}{only}"
        )

    def describe(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "verdict": self.verdict,
            "status": self.status,
            "model_type": self.model_type,
            "family": self.family or None,
            "source": self.source,
            "control": self.control,
            "strides": list(self.strides),
            "period": self.period,
            "reach": self.reach,
            "grids": [{n: getattr(grid, n) for n in ("width", "stride", "shift")} for grid in self.grids],
            "layers": [
                {"layer": layer.index, "kind": layer.kind, "folds": [fold.describe() for fold in layer.folds]}
                for layer in self.layers
            ],
            "holes": [{"layers": list(hole.layers), "why": hole.why} for hole in self.holes],
            "without": self.without or None,
            "notes": list(self.notes),
            "suspicious": list(self.suspicious),
        }


def _unread(fold: Fold) -> str:
    if fold.unread == NEVER:
        return f"the tokens between windows of {fold.grid} are in no entry, and only {fold.raw} are read uncompressed"
    return (
        f"up to {fold.unread} tokens are read nowhere: on {fold.grid} a token may wait {fold.unread + (fold.raw or 0)} "
        f"tokens for its entry, and only the last {fold.raw} are read uncompressed; a sliding window of "
        f"{fold.unread + (fold.raw or 0)} would leave none unread"
    )


def alike(layers: Sequence[Layer]) -> Iterator[tuple[Layer, tuple[int, ...]]]:
    """Layers of one kind and the same grids together: one of them, and the numbers of all."""
    order = {key: place for place, key in enumerate(dict.fromkeys((la.kind, la.folds) for la in layers))}
    ranked = sorted(layers, key=lambda layer: (order[layer.kind, layer.folds], layer.index))
    for _, group in groupby(ranked, key=lambda layer: order[layer.kind, layer.folds]):
        same = list(group)
        yield same[0], tuple(layer.index for layer in same)


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in few words: 0–3, or 2, 4, …, 42, or each by itself.

    Args:
        numbers: ascending.
    """
    if len(numbers) < 3:
        return ", ".join(map(str, numbers))
    step = numbers[1] - numbers[0]
    if all(right - left == step for left, right in pairwise(numbers)):
        return f"{numbers[0]}–{numbers[-1]}" if step == 1 else f"{numbers[0]}, {numbers[1]}, …, {numbers[-1]}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
