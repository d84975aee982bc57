"""Whether the residues are compared at the same depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..records import Observation
from .table import Coordinate


@dataclass(frozen=True, slots=True)
class PositionBalance:
    """Mean and SD of the folded position in each residue group, in tokens.

    Attributes:
        residues: the residues that occur.
        mean, sd: one per residue.
        mean_spread, sd_spread: largest less smallest over residues; at most 0.5 in a balanced protocol.
    """

    residues: tuple[int, ...]
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    mean_spread: float
    sd_spread: float


def position_balance(
    observations: Sequence[Observation], residues: int = 24, coordinate: Coordinate = "source"
) -> PositionBalance:
    """Compare the depth of the residue groups: an effect of position must not look like one of phase.

    Args:
        observations: of one protocol.
        residues: modulus of the groups.
        coordinate: the position that is folded.

    Raises:
        UsageError: without observations.
    """
    if not observations:
        raise UsageError("no observations, so no positions to compare; measure something first")
    position_N = np.array([getattr(o, f"{coordinate}_position") for o in observations])
    groups = [position_N[position_N % residues == residue] for residue in range(residues)]
    seen = [residue for residue, group in enumerate(groups) if len(group)]
    mean = [float(groups[residue].mean()) for residue in seen]
    sd = [float(groups[residue].std()) for residue in seen]
    return PositionBalance(tuple(seen), tuple(mean), tuple(sd), float(np.ptp(mean)), float(np.ptp(sd)))
