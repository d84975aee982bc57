"""What the runner asks of an engine, and the engine of one process."""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends import Backend, BackendSpec
from ..records import NoReply, Reply, Trial
from ..text.synthetic import RetrievalVocabulary

Job = tuple[int, Sequence[Trial]]
"""The number of a backend, in the order in which the engine was given them, and a batch for it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one batch.

    Attributes:
        replies: one per trial, in order.
        seconds: that answering took, where it was done.
        tokens: prompt tokens read.
    """

    replies: Sequence[Reply | NoReply]
    seconds: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a run needs to know of a backend before it begins.

    Attributes:
        description: what the backend says of itself.
        vocabulary: the ids from which a synthetic protocol builds prompts; None where none asks.
    """

    description: dict[str, Any]
    vocabulary: RetrievalVocabulary | None


class Engine(ABC):
    """Maps planned batches to replies in plan order; a batch is never split, so replies don't depend on it.

    A run opens an engine, asks it, and closes it.
    """

    @abstractmethod
    def open(
        self, backends: Sequence[Backend | BackendSpec], synthetic: Sequence[bool]
    ) -> list[Introduction]:
        """Get ready to ask these backends.

        Args:
            backends: numbered from 0 in this order.
            synthetic: of each, whether its vocabulary is needed.

        Raises:
            UsageError: if they cannot be had by this engine.
        """

    @abstractmethod
    def answer(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """Answers in the order of the jobs, which are taken a bounded number ahead.

        Raises:
            PhasescopeError: as the backend raises it, once every batch before has been answered.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything, whether finished or not."""


class Dispatcher:
    """The backends of one process; of those that it loads itself it holds one at a time."""

    def __init__(self, backends: Sequence[Backend | BackendSpec]) -> None:
        self._backends = list(backends)
        self._held: tuple[BackendSpec, Backend] | None = None

    def backend(self, number: int) -> Backend:
        """The backend of that number, loaded if it isn't there."""
        wanted = self._backends[number]
        if not isinstance(wanted, BackendSpec):
            return wanted
        if self._held is None or self._held[0] != wanted:
            if self._held is not None:
                self._held = None
                gc.collect()  # modules refer to each other in cycles, and two models may not fit
            self._held = wanted, wanted.load()
        return self._held[1]

    def introduce(self, number: int, synthetic: bool) -> Introduction:
        """What the backend says of itself, with its vocabulary where that is needed."""
        backend = self.backend(number)
        return Introduction(backend.describe(), backend.vocabulary() if synthetic else None)

    def answer(self, number: int, trials: Sequence[Trial]) -> Answer:
        """Replies with what they cost."""
        backend = self.backend(number)
        started, tokens = time.perf_counter(), backend.tokens
        replies = backend.answer(trials)
        return Answer(replies, time.perf_counter() - started, backend.tokens - tokens)


class Local(Engine):
    """Answers here, one batch at a time."""

    def __init__(self) -> None:
        self._dispatcher = Dispatcher([])

    def open(
        self, backends: Sequence[Backend | BackendSpec], synthetic: Sequence[bool]
    ) -> list[Introduction]:
        """One is loaded after the other, and the last one kept."""
        self._dispatcher = Dispatcher(backends)
        return [self._dispatcher.introduce(number, needed) for number, needed in enumerate(synthetic)]

    def answer(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """One batch after the other."""
        for number, trials in jobs:
            yield self._dispatcher.answer(number, trials)

    def close(self) -> None:
        """Let go of the backends."""
        self._dispatcher = Dispatcher([])
