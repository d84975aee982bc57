"""The coverage score: from the gates alone, which phases some head keeps and which none keeps.

THE RULE, frozen on 2026-11-29 from the theory below and a look at the zoo of that day (W4/S4, W8/S4, W8/S8 with one
and with four KV heads), before any other model's curve was seen. It has one constant, `KEPT`, which only words use;
the phase that is named depends on no constant.

A fact is a key token and its value token right behind it. To be recalled after both were compressed into entries,

1. the value's token must have met its key when it was itself read (`link`), because a later layer's entry is found
   by what the value's token carries of its key. It has met it if it could read the key uncompressed. If the
   key's window was complete by then, it reads the key through that entry, of which the key is a part: link is that
   part;
2. the value's token must then be a large part of an entry of the retrieving layer (`keep`), because the entry is both
   what the query matches and what it reads.

How large a part is, is the cosine between an entry and one of its tokens when payloads are independent and equally
long, which is all that decides the match in the idealised task (`research.theory_model`):

    part_s = a_s / √(Σ_slots a²)            a the gate's weights over one window

    link(p) = mean over facts of phase p:  1 if the value's query read the key uncompressed, else the largest part
              of the key in a window closed by then, of a layer below the last
    keep(p) = mean over facts of phase p:  the largest part of the value over the windows of the last layer

    score(p) = max over heads below of link(p)  ×  max over heads of the last layer of keep(p)

The weakest phase is the one with the lowest score. A head *keeps* a phase if link · keep is at least `KEPT` of the
highest score of the model. There is no score for a model without gates or with fewer than two layers.

Source: arXiv 2609.36322 for heads whose gates prefer offsets; the rule itself is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

KEPT = 0.5
"""Share of the highest score from which on a phase counts as kept; used in words, never to name a phase."""
WEAKEST = 2
"""A named phase is a hit among so many measured weakest ones."""


@dataclass(frozen=True, slots=True)
class CoverageScore:
    """What the gates say about each phase.

    Suffixes: A heads of the layers below, H heads of the last layer, P phases.

    Attributes:
        link_AP: what each head below hands to the value's token of its key.
        keep_HP: what each head of the last layer keeps of the value's token.
    """

    link_AP: Floats
    keep_HP: Floats

    @property
    def heads_HP(self) -> Floats:
        """What each head of the last layer keeps of a fact: the best link times its own keep."""
        kept: Floats = self.link_AP.max(axis=0) * self.keep_HP
        return kept

    @property
    def phases_P(self) -> Floats:
        """The score of every phase: that of its best head."""
        best: Floats = self.heads_HP.max(axis=0)
        return best

    @property
    def weakest(self) -> int:
        """The phase with the lowest score, the first of equal ones."""
        return int(np.argmin(self.phases_P))

    @property
    def kept_HP(self) -> npt.NDArray[np.bool_]:
        """Which head keeps which phase."""
        kept: npt.NDArray[np.bool_] = self.heads_HP >= KEPT * self.phases_P.max()
        return kept

    @property
    def unkept(self) -> tuple[int, ...]:
        """The phases that no head keeps."""
        return tuple(np.flatnonzero(~self.kept_HP.any(axis=0)).tolist())

    def prefers_HP(self) -> npt.NDArray[np.bool_]:
        """For each head the phases at which it keeps more than its own mean over phases."""
        prefers: npt.NDArray[np.bool_] = self.heads_HP > self.heads_HP.mean(axis=1, keepdims=True)
        return prefers


def part(weight: Floats) -> Floats:
    """Cosine between an entry and each of its tokens: a / √(Σ a²) over the last axis.

    Independent payloads of equal length are all but orthogonal in many channels, so that the entry Σ a_s x_s has
    length √(Σ a²) and the inner product a_s with token s.
    """
    length = np.sqrt((weight**2).sum(axis=-1, keepdims=True))
    shares: Floats = weight / np.where(length > 0, length, 1.0)
    return shares


def weakest_phases(curve: Sequence[float] | Floats, count: int = WEAKEST) -> tuple[int, ...]:
    """The phases with the lowest measured rates, the first of equal ones, in rising order of rate."""
    return tuple(np.argsort(np.asarray(curve), kind="stable")[:count].tolist())


def chance_of_hit(phases: int, count: int = WEAKEST) -> float:
    """Probability that a phase drawn at random is among the measured weakest."""
    return min(1.0, count / phases)


def agreement(score: Floats, curve: Floats) -> float | None:
    """Rank correlation of score and measured curve over phases (Spearman); none where one is constant."""
    if len(score) < 3 or np.ptp(score) == 0 or np.ptp(curve) == 0:
        return None
    return float(stats.spearmanr(score, curve).statistic)
