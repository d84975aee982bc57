"""Place facts on strong phases: the fewest neutral tokens in front of records, exact on token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..statistics.profile import TOLERANCE, Profile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Passage:
    """One record or retrieved passage, as token ids.

    Attributes:
        ids: its tokens, with whatever separates it from the next.
        keys: indices in `ids` of the first tokens of what will be asked for; none where nothing is marked.
    """

    ids: tuple[int, ...]
    keys: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(not 0 <= key < len(self.ids) for key in self.keys):
            raise UsageError(
                f"keys {self.keys} of a passage of {len(self.ids)} tokens: give 0 to {len(self.ids) - 1}"
            )


@dataclass(frozen=True, slots=True)
class Packing:
    """Where neutral tokens go, and what it does to the marked keys.

    Attributes:
        pads: neutral tokens in front of each passage.
        before: expected accuracy of each passage's keys (their mean) without pads; NaN where none is marked.
        after: the same with pads.
    """

    pads: tuple[int, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def added(self) -> int:
        """Neutral tokens in all."""
        return sum(self.pads)


def pack(
    passages: Sequence[Passage],
    profile: Profile,
    *,
    start: int = 0,
    limit: int | None = None,
) -> Packing:
    """Choose the pads before each passage so that the marked keys land on strong phases.

    A passage is *well placed* where its keys' mean accuracy is within `TOLERANCE` of the best that any
    offset gives it. Among all pads of at most `limit` tokens in all, those are chosen that place the most
    passages well, then those that add the fewest tokens, then those with the highest mean accuracy. Exact:

        best[p] = max over d of best'[p − d] + well(offset + p)        d = 0 … S − 1, p the pads so far

    where the residue of everything that follows depends on p alone. Without a limit it is enough to know p
    modulo S. O(passages · S · min(limit, S)), no search.

    Args:
        passages: in the order of the prompt.
        profile: of the model that will read the prompt; one without an effect gets no pads.
        start: tokens in front of the first passage, a chat template's included.
        limit: the most tokens to add in all; as many as are useful by default.

    Returns:
        the pads, with the accuracy that the profile expects before and after.

    Raises:
        UsageError: for a negative start or limit.
    """
    if start < 0 or (limit is not None and limit < 0):
        raise UsageError(f"start {start}, limit {limit}: give tokens of at least 0")
    value_NS = _values(passages, profile, start)
    if not profile.sensitive or profile.stride < 2:
        none = value_NS[:, 0].tolist()
        return Packing((0,) * len(passages), tuple(none), tuple(none))
    pads = np.zeros(len(passages), dtype=np.int64)
    marked = np.flatnonzero(~np.isnan(value_NS[:, 0]))  # the others only move along, and get no pads
    useful = (profile.stride - 1) * len(marked)
    cap = useful if limit is None else min(limit, useful)
    if cap:
        value_MS = value_NS[marked]
        well_MS = value_MS >= value_MS.max(axis=1, keepdims=True) - TOLERANCE
        place = _unbounded if cap == useful else _bounded
        pads[marked] = place(well_MS.astype(np.float64), value_MS, cap)
    offset = np.cumsum(pads) % profile.stride
    after = value_NS[np.arange(len(passages)), offset]
    return Packing(tuple(pads.tolist()), tuple(value_NS[:, 0].tolist()), tuple(after.tolist()))


def _values(passages: Sequence[Passage], profile: Profile, start: int) -> Floats:
    """Mean expected accuracy of each passage's keys when all before it grew by 0 … S − 1, [passages, S]."""
    curve_S = np.asarray(profile.accuracy)
    value_NS = np.full((len(passages), profile.stride), np.nan)
    position = start
    for row_S, passage in zip(value_NS, passages, strict=True):
        if passage.keys:
            phase_SK = np.arange(profile.stride)[:, None] + position + np.asarray(passage.keys)
            row_S[:] = curve_S[phase_SK % profile.stride].mean(axis=1)
        position += len(passage.ids)
    return value_NS


def _unbounded(gain_NS: Floats, value_NS: Floats, cap: int) -> Ints:
    """The fewest pads that place every passage well, by residue of the pads so far; `cap` does not bind."""
    passages, stride = gain_NS.shape
    step_SD = (np.arange(stride)[:, None] - np.arange(stride)) % stride  # state before, [state, pads]
    score_S = np.where(np.arange(stride) == 0, 0.0, -np.inf)
    few, mean = _weights(passages, stride)
    choice_NS = np.zeros((passages, stride), dtype=np.int64)
    for index, (gain_S, value_S) in enumerate(zip(gain_NS, value_NS, strict=True)):
        ways_SD = score_S[step_SD] - few * np.arange(stride)
        choice_NS[index] = ways_SD.argmax(axis=1)
        score_S = ways_SD.max(axis=1) + gain_S + mean * value_S
    state, pads = int(score_S.argmax()), np.zeros(passages, dtype=np.int64)
    for index in range(passages - 1, -1, -1):
        pads[index] = choice_NS[index, state]
        state = int(step_SD[state, pads[index]])
    return pads


def _bounded(gain_NS: Floats, value_NS: Floats, cap: int) -> Ints:
    """The same under a limit: the state is the number of pads so far, 0 … cap."""
    passages, stride = gain_NS.shape
    state_P = np.arange(cap + 1)
    score_P = np.where(state_P == 0, 0.0, -np.inf)
    choice_NP = np.zeros((passages, cap + 1), dtype=np.int16)
    few, mean = _weights(passages, stride)
    for index, (gain_S, value_S) in enumerate(zip(gain_NS, value_NS, strict=True)):
        ways_DP = np.full((min(stride, cap + 1), cap + 1), -np.inf)
        for added in range(len(ways_DP)):
            ways_DP[added, added:] = score_P[: cap + 1 - added] - few * added
        choice_NP[index] = ways_DP.argmax(axis=0)
        score_P = ways_DP.max(axis=0) + (gain_S + mean * value_S)[state_P % stride]
    state, pads = int(score_P.argmax()), np.zeros(passages, dtype=np.int64)
    for index in range(passages - 1, -1, -1):
        pads[index] = choice_NP[index, state]
        state -= int(pads[index])
    return pads


def _weights(passages: int, stride: int) -> tuple[float, float]:
    """What a pad costs, and what accuracy is worth, beside one well placed passage.

    All pads together weigh less than one passage, and all accuracies less than one pad: the three aims
    are met in their order.
    """
    few = 1 / (passages * stride + 1)
    return few, few / (passages + 1)
