"""Which trials share a prefix, and so how many tokens have to be read; needs no torch.

Shape suffixes: B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..records import Trial

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Context:
    """Trials that share a prefix and differ in suffixes of one length.

    Attributes:
        trials: their places in the batch.
        prefix_T: what they share.
        suffix_BT: the rest of each prompt, at least its last token.
        answer_tokens: tokens of each answer.
        new_tokens: tokens to continue each by.
    """

    trials: list[int]
    prefix_T: Ids
    suffix_BT: Ids
    answer_tokens: int
    new_tokens: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Contexts of equal shape can be read in one forward."""
        return (len(self.prefix_T), *self.suffix_BT.shape, self.answer_tokens, self.new_tokens)

    @property
    def tokens(self) -> int:
        """Prompt tokens that are read when the prefix is read once."""
        return self.prefix_T.size + self.suffix_BT.size


def contexts(trials: Sequence[Trial], *, share: bool = True) -> Iterator[Context]:
    """Group trials of one cluster and layout, of equal lengths, by their longest common prefix.

    Args:
        trials: of one batch.
        share: False leaves every prompt whole.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, trial in enumerate(trials):
        lengths = (len(trial.prompt_ids), len(trial.answer_ids), trial.new_tokens)
        groups.setdefault((trial.cluster, trial.layout, *lengths), []).append(index)
    for (*_, answer_tokens, new_tokens), indices in groups.items():
        ids_BT = np.array([trials[index].prompt_ids for index in indices], dtype=np.int64)
        same_T = (ids_BT == ids_BT[0]).all(axis=0)
        same_T[-1] = False  # the last token gives the logits, so it is always read in the second forward
        shared = int(same_T.argmin()) if share else 0
        # Copies, because views would keep all prompts of the context in memory.
        prefix_T, suffix_BT = ids_BT[0, :shared].copy(), ids_BT[:, shared:].copy()
        yield Context(indices, prefix_T, suffix_BT, answer_tokens, new_tokens)


def in_order(trials: Sequence[Trial], *, layouts: bool) -> list[list[int]]:
    """What one worker asks in order: one trial, or a layout with all its questions where its prefix stays cached."""
    if not layouts:
        return [[index] for index in range(len(trials))]
    units: dict[tuple[str, int], list[int]] = {}
    for index, trial in enumerate(trials):
        units.setdefault((trial.cluster, trial.layout), []).append(index)
    return list(units.values())
