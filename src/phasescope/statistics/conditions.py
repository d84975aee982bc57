"""The conditions of one or several runs: their observations, the stride of their fold, and their controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import UsageError, plain
from ..grid import boundary_residues
from ..observations import Observations
from ..records import Dropped, count_reasons
from ..runs import ConditionDescription, RunDescription, folds, read_run
from .table import Floats, Ints


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a run with all its answers.

    Attributes:
        name: unique in the report: the condition's own name, with its run's where two runs share it.
        run: label of its run.
        described: what run.json says of it.
        fold: the stride that folds its positions: its own, or for a control the largest of the other conditions.
        observations: all its answered trials.
        dropped: its trials that could not be observed.
    """

    name: str
    run: str
    described: ConditionDescription
    fold: int
    observations: Observations
    dropped: Sequence[Dropped] = ()

    @property
    def control(self) -> bool:
        """Whether its model has no grid."""
        return self.described.control

    @property
    def stride(self) -> int | None:
        """The common stride of its grids; None where there is no grid, or it is not known."""
        return self.described.stride

    @property
    def protocol(self) -> str:
        """Name of the protocol."""
        return self.described.protocol.name

    @property
    def boundary(self) -> list[int]:
        """Residues at which the boundary of its model's windows loses a fact; none without a grid."""
        backend = self.described.backend
        closing = backend.visibility != "next"
        return boundary_residues(backend.grids or (), self.fold, closing=closing) if self.stride else []

    @property
    def coordinate(self) -> Literal["source", "query"]:
        """The position that the protocol moves."""
        return self.described.protocol.moves

    @property
    def drop_reasons(self) -> str:
        """Why its prompts were dropped, and how many for each reason; empty where none was."""
        return plain(count_reasons(line.dropped for line in self.dropped), 300)

    @property
    def positions(self) -> Ints:
        """The position of each observation that is folded; shape [N]."""
        return self.observations.integers(f"{self.coordinate}_position")

    def depth_spread(self) -> tuple[float, float] | None:
        """How far the residues are apart in depth: an effect of position must not look like one of phase.

        Returns:
            largest less smallest over residues of the mean and of the SD of the folded position, in tokens; at most 0.5
            in a balanced protocol. None without observations.
        """
        if not self.observations:
            return None
        position_N = self.positions
        residue_N = position_N % self.described.protocol.residues
        groups = [position_N[residue_N == residue] for residue in np.unique(residue_N)]
        means, deviations = [group.mean() for group in groups], [group.std() for group in groups]
        return float(np.ptp(means)), float(np.ptp(deviations))

    def context_shares(self) -> Floats:
        """Accuracy of every context at every phase of the fold.

        Returns:
            shape [contexts, phases]; contexts that miss a phase are left out.
        """
        if not self.observations:
            return np.empty((0, 0))
        context, _ = self.observations.texts("cluster")
        phase = self.positions % self.fold
        cell, cells = context * self.fold + phase, (int(context.max()) + 1) * self.fold
        counts = np.bincount(cell, minlength=cells).reshape(-1, self.fold)
        right = np.bincount(cell, self.observations.numbers("score"), cells).reshape(-1, self.fold)
        whole = (counts > 0).all(axis=1)
        shares: Floats = right[whole] / counts[whole]
        return shares

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


def read_conditions(
    folders: Sequence[Path], report: Callable[[int, int], None] = lambda done, planned: None
) -> tuple[list[Condition], dict[str, RunDescription]]:
    """Read one or several run folders.

    Args:
        folders: that `measure` wrote.
        report: told the trials that were read of the present folder, and those that were planned.

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
    runs = {label: read_run(folder, report) for label, folder in zip(labels, folders, strict=True)}
    shared = Counter(name for run in runs.values() for name in run.observations)
    found = [(label, one) for label, run in runs.items() for one in run.description.conditions]
    names = _labels([one.name if shared[one.name] == 1 else f"{label}: {one.name}" for label, one in found])
    together = folds([one for _, one in found])
    conditions = [
        Condition(name, label, one, fold, runs[label].observations[one.name], runs[label].dropped[one.name])
        for name, (label, one), fold in zip(names, found, together, strict=True)
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
