"""One backend after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..backends import Backend, BackendSpec
from .engine import Answer, Dispatcher, Engine, Introduction, Job


class Local(Engine):
    """Answers here, one batch at a time."""

    def __init__(self) -> None:
        self._desk = Dispatcher([])

    def open(
        self, backends: Sequence[Backend | BackendSpec], synthetic: Sequence[bool]
    ) -> list[Introduction]:
        """One is loaded after the other, and the last one kept."""
        self._desk = Dispatcher(backends)
        return [self._desk.introduce(number, needed) for number, needed in enumerate(synthetic)]

    def answer(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """One batch after the other."""
        for number, trials in jobs:
            yield self._desk.answer(number, trials)

    def close(self) -> None:
        """Let go of the backends."""
        self._desk = Dispatcher([])
