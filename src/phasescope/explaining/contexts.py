"""Contexts that are read once for all trials that share them, and cut into forwards of at most so many tokens.

Shape suffixes: R rows (questions), B rows (contexts), T tokens, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..records import Trial
from .gates import Fact, Read
from .hooks import AttentionHook
from .probe import gates

Ids = npt.NDArray[np.int64]
See = Callable[[list[Read], list[Fact]], None]
"""Given the gates over each read of contexts, and the facts that they hold."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Trials of one cluster and layout: a prefix that they share, and what each has of its own."""

    trials: list[int]
    prefix_T: Ids
    own_RT: Ids


class Contexts:
    """Reads the prompts of trials with one model.

    Args:
        model: a causal language model of `transformers`, in evaluation mode.
        hooks: its attention layers.
        max_tokens: the most tokens of context over the rows of one forward.
    """

    def __init__(self, model: Any, hooks: Sequence[AttentionHook], max_tokens: int) -> None:
        self.model = model
        self.hooks = list(hooks)
        self.max_tokens = max_tokens

    def rows(self, trials: Sequence[Trial], see: See | None) -> Iterator[tuple[list[int], Tensor, Any]]:
        """Trials whose prompts are read but for their last token: their numbers, that token, and the cache."""
        for groups in self._waves(trials):
            cache = self._read(trials, groups, see)
            rows = [row for group in groups for row in group.trials]
            group_R = np.repeat(np.arange(len(groups)), [len(group.trials) for group in groups])
            own_RT = np.concatenate([group.own_RT for group in groups])
            size = max(1, self.max_tokens // len(trials[rows[0]].prompt_ids))
            for start in range(0, len(rows), size):
                chunk = slice(start, start + size)
                mine = self._copied(cache, group_R[chunk])
                ids_RT = self.tensor(own_RT[chunk])
                if ids_RT.shape[1] > 1:
                    mine = self._forward(ids_RT[:, :-1], mine).cache
                yield rows[chunk], ids_RT[:, -1:], mine

    def read(self, trials: Sequence[Trial]) -> None:
        """Read what trials share, for hooks to see, and keep nothing."""
        for groups in self._waves(trials):
            self._read(trials, groups, None)

    def repeated(self, cache: Any, rows: int, times: int) -> Any:
        """A copy of a cache with all its rows so many times over."""
        return self._copied(cache, np.tile(np.arange(rows), times))

    def last(self, last_R1: Tensor, cache: Any) -> Tensor:
        """Log-probabilities of the token after the last one, [R, V]."""
        logits_RV = self._forward(last_R1, cache).logits[:, -1]
        return torch.log_softmax(logits_RV, dim=-1, dtype=torch.float32)

    def tensor(self, ids: Any) -> Tensor:
        """Indices where the model is."""
        return torch.as_tensor(ids, dtype=torch.long, device=self.model.device)

    def _read(self, trials: Sequence[Trial], groups: Sequence[_Group], see: See | None) -> Any:
        """The cache after the shared prefixes, and what the gates did while they were read."""
        prefix_BT = np.stack([group.prefix_T for group in groups])
        if not prefix_BT.size:
            return None
        if see is None:
            return self._forward(self.tensor(prefix_BT), None).cache
        with gates(self.hooks) as reads:
            cache = self._forward(self.tensor(prefix_BT), None).cache
            facts = [
                Fact(row, trials[index].source_position, value)
                for row, group in enumerate(groups)
                for index in group.trials
                if (value := value_position(trials[index])) is not None and value < prefix_BT.shape[1]
            ]
            see(reads(), facts)
        return cache

    def _waves(self, trials: Sequence[Trial]) -> Iterator[list[_Group]]:
        """Groups of equal shape that fit one forward together."""
        waves: dict[tuple[int, ...], list[_Group]] = {}
        for group in _groups(trials):
            shape = (len(group.prefix_T), group.own_RT.shape[1])
            wave = waves.setdefault(shape, [])
            if wave and (len(wave) + 1) * sum(shape) > self.max_tokens:
                yield wave
                wave = waves[shape] = []
            wave.append(group)
        yield from waves.values()

    def _copied(self, cache: Any, row_R: Ids) -> Any:
        """A copy of a cache with these rows; reading expands a cache in place."""
        if cache is None:
            return None
        own = copy.deepcopy(cache)
        own.reorder_cache(self.tensor(row_R))
        return own

    def _forward(self, ids_BT: Tensor, cache: Any) -> Any:
        return self.model(input_ids=ids_BT, cache=cache, use_cache=True, logits_to_keep=1)


def value_position(trial: Trial) -> int | None:
    """Where a fact's value stands: the first place after its key at which the answer begins."""
    try:
        return trial.prompt_ids.index(trial.answer_ids[0], trial.source_position + 1)
    except ValueError:
        return None


def _groups(trials: Sequence[Trial]) -> Iterator[_Group]:
    """Trials of one cluster, layout and length, by their longest common prefix short of the last token."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for index, trial in enumerate(trials):
        found.setdefault((trial.cluster, trial.layout, len(trial.prompt_ids)), []).append(index)
    for indices in found.values():
        ids_RT = np.array([trials[index].prompt_ids for index in indices], dtype=np.int64)
        same_T = (ids_RT == ids_RT[0]).all(axis=0)
        same_T[-1] = False
        shared = int(same_T.argmin())
        yield _Group(indices, ids_RT[0, :shared], ids_RT[:, shared:])
