"""What heads put out on reference prompts: their means, and samples, which stand in for a head that is taken away.

Shape suffixes: R rows (outputs), A query heads, D channels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .units import Branch


@dataclass
class ActivationCache:
    """What each head put out on prompts that are not among the trials.

    Attributes:
        sums: by (layer, branch), the sum over outputs [A, D] and their number.
        samples: by (layer, branch), the outputs themselves, kept only for resampling.
    """

    sums: dict[tuple[int, Branch], tuple[Tensor, int]] = field(default_factory=dict)
    samples: dict[tuple[int, Branch], list[Tensor]] = field(default_factory=dict)

    def add(self, layer: int, branch: Branch, heads_RAD: Tensor, *, keep: bool = False) -> None:
        """Add outputs, one a row; `keep` them where they are resampled."""
        total, count = self.sums.get(
            (layer, branch), (torch.zeros_like(heads_RAD[0], dtype=torch.float64), 0)
        )
        self.sums[layer, branch] = total + heads_RAD.double().sum(0), count + len(heads_RAD)
        if keep:
            self.samples.setdefault((layer, branch), []).append(heads_RAD)

    def mean_AD(self, layer: int, branch: Branch) -> Tensor:
        """Mean output of the layer's heads."""
        total, count = self.sums[layer, branch]
        return total / count

    @property
    def outputs(self) -> int:
        """How many were added, for each layer and branch."""
        return max((count for _, count in self.sums.values()), default=0)
