"""Key-value retrieval over records of unequal lengths, with neutral tokens placed by a profile or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..protocols.kv_retrieval import KVRetrieval
from ..statistics.profile import Profile
from .pack import Passage, pack

Ints = npt.NDArray[np.int64]
Pads = Literal["none", "pack", "random"]


@dataclass(frozen=True, kw_only=True)
class Records(KVRetrieval):
    """Records of 2 to `spread` + 1 tokens, a key and its value with fillers behind, as users have them.

        fillers before record i = layout + base + Σ_j<i gap_j + Σ_j≤i pad_j       gap uniform on 0 … spread − 1

    The gaps are drawn once per context. Over the layouts each key visits every residue, as long as nothing
    is padded. `pads` says what is done about it: nothing; the fewest neutral tokens that bring every key to a
    strong phase of the profile; or as many tokens as that would take, each in front of a record drawn at
    random. The three read the same records and gaps for the same generator, so that they can be compared
    question by question; the prompt grows by the pads.

    Args:
        spread: number of record lengths.
        pads: `none`, `pack` or `random`.
        profile: of the model; needed where anything is padded.
        limit: the most pads per context.

    Raises:
        UsageError: for numbers outside their range, or pads without a profile.
    """

    name: ClassVar[str] = "records"
    spacing: ClassVar[int] = 1
    moves: ClassVar[Literal["source", "query"]] = "source"

    spread: int = 8
    pads: Pads = "none"
    profile: Profile | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spread < 1:
            raise UsageError(f"spread is {self.spread}; give at least 1 record length")
        if self.pads not in ("none", "pack", "random"):
            raise UsageError(f"pads are {self.pads!r}; give none, pack or random")
        if self.pads != "none" and self.profile is None:
            raise UsageError(f"pads by {self.pads!r} need a profile; `phasescope report RUN` writes one")

    def _stream(self, rng: np.random.Generator) -> np.random.Generator:
        """One for each context, so that the pads of one don't move the draws of the next."""
        return np.random.default_rng(rng.integers(2**63))

    def _fillers_before(self, base: int, end: int, rng: np.random.Generator) -> Ints:
        gap_P = rng.integers(self.spread, size=self.pairs)
        place = np.random.default_rng(
            rng.integers(2**63)
        )  # drawn whatever the pads, so that all conditions agree
        lead_L = base + np.arange(self.residues)
        before_P = np.concatenate([[0], np.cumsum(gap_P)])
        before_LP: Ints = lead_L[:, None] + before_P
        before_LP[:, -1] = 2 * (self.residues - 1) + before_P[-1] + self.margin + end
        if self.pads == "none" or self.profile is None:
            return before_LP
        pads_LP = np.stack([self._packed(self.profile, gap_P, lead) for lead in lead_L.tolist()])
        if self.pads == "random":
            pads_LP = np.stack([_scattered(pads_P, place) for pads_P in pads_LP])
        added_LP = np.cumsum(pads_LP, axis=1)
        padded_LP: Ints = before_LP + np.hstack([added_LP, added_LP[:, -1:]])
        return padded_LP

    def _packed(self, profile: Profile, gap_P: Ints, lead: int) -> Ints:
        """Pads in front of each record where `lead` tokens stand before the first."""
        passages = [Passage((0,) * (2 + gap), (0,)) for gap in gap_P.tolist()]
        return np.asarray(pack(passages, profile, start=lead, limit=self.limit).pads, dtype=np.int64)


def _scattered(pads_P: Ints, rng: np.random.Generator) -> Ints:
    """As many pads, each in front of a record drawn at random."""
    placed_P: Ints = np.bincount(rng.integers(len(pads_P), size=int(pads_P.sum())), minlength=len(pads_P))
    return placed_P
