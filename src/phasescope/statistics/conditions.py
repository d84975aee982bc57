"""The conditions of one or several runs: who was measured, folded by what, beside which control."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError
from ..records import Dropped, Observation
from ..runs import read_run

DEFAULT_FOLD = 24


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a run with everything that it answered.

    Attributes:
        name: unique in the report: the condition's own name, with its run's where two runs share it.
        run: label of its run.
        control: whether its model folds nothing.
        stride: the period its grids have together; null where there is no grid, or it is not known.
        fold: by what its positions are folded: its own stride, or for a control its fellows' largest.
        protocol: name of the protocol.
        coordinate: the position that the protocol moves.
        backend: what the backend said of itself.
        observations: all its answered trials.
        dropped: its trials that could not be observed.
        residues: how many residues its protocol's layouts visit.
        asked: what the protocol said of itself.
    """

    name: str
    run: str
    control: bool
    stride: int | None
    fold: int
    protocol: str
    coordinate: Literal["source", "query"]
    backend: dict[str, Any]
    observations: Sequence[Observation]
    dropped: Sequence[Dropped] = ()
    residues: int = DEFAULT_FOLD
    asked: dict[str, Any] = field(default_factory=dict)

    def position(self, observation: Observation) -> int:
        """The position that is folded."""
        return observation.source_position if self.coordinate == "source" else observation.query_position

    def control_among(self, conditions: Iterable[Condition]) -> Condition | None:
        """The control that answered the same kind of trials, of the same run if there is one."""
        if self.control:
            return None
        fitting = [
            a
            for a in conditions
            if a.control and (a.protocol, a.coordinate) == (self.protocol, self.coordinate)
        ]
        return min(fitting, key=lambda a: a.run != self.run, default=None)


def common_stride(grids: Sequence[dict[str, Any]] | None) -> int | None:
    """The stride by which a model's results are folded; null without a grid that folds anything.

    The least common multiple of the grids' strides, as long as a protocol's layouts visit all its phases; else
    the smallest stride, whose windows are the most (DeepSeek-V4: 4, and not 128).
    """
    strides = [int(grid["stride"]) for grid in grids or () if grid["stride"] > 1]
    together = math.lcm(*strides)
    return (together if together <= DEFAULT_FOLD else min(strides)) if strides else None


def read_conditions(folders: Sequence[Path]) -> tuple[list[Condition], dict[str, dict[str, Any]]]:
    """Read one or several run folders.

    Returns:
        the conditions in the order of their runs, and each run's description by its label.

    Raises:
        UsageError: without folders, or where one holds no run.
        BrokenRecordError: where a file of a run is damaged.
    """
    if not folders:
        raise UsageError("no run folder given; name at least one that `phasescope measure` wrote")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError(f"a run is named twice among {', '.join(map(str, folders))}; name each once")
    labels = _labels([folder.resolve().name for folder in folders])
    runs = {label: read_run(folder) for label, folder in zip(labels, folders, strict=True)}
    shared = Counter(name for run in runs.values() for name in run.observations)
    described = [
        (label, condition) for label, run in runs.items() for condition in run.description["conditions"]
    ]
    names = _labels(
        [
            condition["name"] if shared[condition["name"]] == 1 else f"{label}: {condition['name']}"
            for label, condition in described
        ]
    )
    found = [
        _condition(
            name,
            label,
            condition,
            runs[label].observations[condition["name"]],
            runs[label].dropped[condition["name"]],
        )
        for name, (label, condition) in zip(names, described, strict=True)
    ]
    folds = {
        coordinate: max((a.stride for a in found if a.stride and a.coordinate == coordinate), default=None)
        for coordinate in ("source", "query")
    }
    conditions = [
        replace(condition, fold=condition.stride or folds[condition.coordinate] or condition.fold)
        for condition in found
    ]
    return conditions, {label: run.description for label, run in runs.items()}


def _labels(names: Sequence[str]) -> list[str]:
    """The names, numbered where one occurs again."""
    seen: Counter[str] = Counter()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return labels


def _condition(
    name: str,
    run: str,
    described: dict[str, Any],
    observations: Sequence[Observation],
    dropped: Sequence[Dropped],
) -> Condition:
    grids = described["backend"].get("grids")
    stride = common_stride(grids)
    settings = described["protocol"]["settings"]
    residues = settings.get("groups") or settings.get("residues") or DEFAULT_FOLD
    return Condition(
        name=name,
        run=run,
        control=grids is not None and stride is None,
        stride=stride,
        fold=stride or residues,
        protocol=described["protocol"]["name"],
        coordinate=described["protocol"]["moves"],
        backend=described["backend"],
        observations=observations,
        dropped=dropped,
        residues=residues,
        asked=described["protocol"],
    )
