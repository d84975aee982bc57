"""Batches on their way to another process: prompts that share a prefix travel as one.

A batch is sent, not drawn again by its worker: the draws of a protocol come one after the other, so each
worker would have to build all batches before its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records import Trial

_FACTS = tuple(field.name for field in fields(Trial) if field.name != "prompt_ids")


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch in few bytes.

    Attributes:
        facts: of each trial, everything but its prompt.
        shared: of each prompt, how many first tokens it shares with the one before.
        rest: of each prompt, the others.
        arrays: whether prompts are arrays; else they are tuples.
    """

    facts: list[tuple[Any, ...]]
    shared: list[int]
    rest: list[npt.NDArray[np.integer]]
    arrays: bool


def pack(batch: Sequence[Trial]) -> Packed:
    """A batch as it is sent."""
    facts = [tuple(getattr(trial, name) for name in _FACTS) for trial in batch]
    shared: list[int] = []
    rest: list[npt.NDArray[np.integer]] = []
    before_T = np.empty(0, dtype=np.int64)
    for trial in batch:
        ids_T = np.asarray(trial.prompt_ids)
        same = _common(before_T, ids_T)
        shared.append(same)
        rest.append(ids_T[same:].astype(np.int32 if ids_T.max(initial=0) < 2**31 else np.int64))
        before_T = ids_T
    return Packed(facts, shared, rest, any(isinstance(trial.prompt_ids, np.ndarray) for trial in batch))


def unpack(packed: Packed) -> list[Trial]:
    """The batch that was sent."""
    trials = []
    before_T = np.empty(0, dtype=np.int64)
    for facts, same, rest_T in zip(packed.facts, packed.shared, packed.rest, strict=True):
        before_T = np.concatenate([before_T[:same], rest_T])
        ids: Any = before_T if packed.arrays else tuple(before_T.tolist())
        trials.append(Trial(prompt_ids=ids, **dict(zip(_FACTS, facts, strict=True))))
    return trials


def _common(one_T: npt.NDArray[np.integer], other_T: npt.NDArray[np.integer]) -> int:
    """How many first tokens are the same."""
    most = min(len(one_T), len(other_T))
    differs_T = one_T[:most] != other_T[:most]
    return int(differs_T.argmax()) if differs_T.any() else most
