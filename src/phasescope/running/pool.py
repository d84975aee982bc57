"""Several workers: batches are dispatched to whoever is free, and answers come back in plan order."""

from __future__ import annotations

import pickle
import traceback
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..backends import Backend, BackendSpec
from ..errors import UsageError
from .engine import Answer, Dispatcher, Engine, Introduction, Job
from .wire import Packed, pack, unpack

LIVES = 3
"""How many workers may die over one batch before the batch is blamed."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a worker about one backend: to answer a batch or, without one, to introduce the backend."""

    number: int
    packed: Packed | None = None
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """The error of a worker that is still there."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone, and its request is still open."""

    reason: str


Outcome = Done | Failed | Lost


def perform(dispatcher: Dispatcher, call: Call) -> Done | Failed:
    """Carry out a request, in the worker; an error becomes a value that can be sent."""
    try:
        if call.packed is None:
            return Done(dispatcher.introduce(call.number, call.synthetic))
        return Done(dispatcher.answer(call.number, unpack(call.packed)))
    except Exception as error:
        return Failed(_sendable(error))


class Pool(Engine):
    """What engines with workers share: which worker gets which batch, and what happens when one dies.

    At most two batches per worker are under way: one that is being answered, and one that is ready to be sent or
    waits for an earlier one to be written. A batch whose worker dies goes to a new one.

    Args:
        workers: how many.

    Raises:
        UsageError: for fewer than one.
    """

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise UsageError(f"{workers} workers; give at least 1")
        self.workers = workers
        self.specs: list[BackendSpec] = []
        self._number_of: list[int] = []

    @abstractmethod
    def start_worker(self, place: int) -> None:
        """Start the worker of an empty place."""

    @abstractmethod
    def send(self, place: int, call: Call) -> None:
        """Send a call to a worker that has none."""

    @abstractmethod
    def next(self) -> tuple[int, Outcome]:
        """Wait for any worker, and return its place and its result; a lost worker leaves its place empty."""

    def open(
        self, backends: Sequence[Backend | BackendSpec], synthetic: Sequence[bool]
    ) -> list[Introduction]:
        """Start the workers; equal specs are one backend."""
        needed: dict[int, bool] = {}
        self.specs, self._number_of = [], []
        for backend, with_ids in zip(backends, synthetic, strict=True):
            if not isinstance(backend, BackendSpec):
                raise UsageError(
                    f"{type(self).__name__.lower()} workers load their own backends; give a BackendSpec instead of "
                    f"{type(backend).__name__}"
                )
            if backend not in self.specs:
                self.specs.append(backend)
            number = self.specs.index(backend)
            self._number_of.append(number)
            needed[number] = needed.get(number, False) or with_ids
        for place in range(self.workers):
            self.start_worker(place)
        # All at once, because loading a model takes its time.
        found = list(self._map(Call(number, synthetic=with_ids) for number, with_ids in needed.items()))
        return [found[number] for number in self._number_of]

    def answer(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """Dispatch the batches to whoever is free."""
        return self._map(Call(self._number_of[number], pack(trials)) for number, trials in jobs)

    def _map(self, calls: Iterable[Call]) -> Iterator[Any]:
        """Results in the order of the calls."""
        coming = enumerate(calls)
        ready: deque[tuple[int, Call]] = deque()
        free, busy = deque(range(self.workers)), dict[int, tuple[int, Call]]()
        done, deaths = dict[int, Done | Failed](), Counter[int]()
        turn = 0
        while True:
            while len(ready) + len(busy) + len(done) < 2 * self.workers:
                # A free worker gets its call before the next one is drawn and packed.
                _dispatch(self, ready, free, busy)
                if (item := next(coming, None)) is None:
                    break
                ready.append(item)
            _dispatch(self, ready, free, busy)
            if turn in done:
                yield _value(done.pop(turn))
                turn += 1
                continue
            if not busy:
                return
            place, outcome = self.next()
            number, call = busy.pop(place)
            free.append(place)
            if isinstance(outcome, Lost):
                deaths[number] += 1
                if deaths[number] >= LIVES:
                    raise UsageError(_hopeless(call, deaths[number], outcome))
                self.start_worker(place)
                ready.appendleft((number, call))
            else:
                done[number] = outcome


def _dispatch(
    pool: Pool, ready: deque[tuple[int, Call]], free: deque[int], busy: dict[int, tuple[int, Call]]
) -> None:
    while ready and free:
        place = free.popleft()
        busy[place] = ready.popleft()
        pool.send(place, busy[place][1])


def _value(outcome: Done | Failed) -> Any:
    if isinstance(outcome, Failed):
        raise outcome.error
    return outcome.value


def _hopeless(call: Call, deaths: int, lost: Lost) -> str:
    what = "loading a model" if call.packed is None else f"the batch {unpack(call.packed)[0].cluster}"
    return (
        f"{deaths} workers died over {what} ({lost.reason}); if memory ran out, give fewer workers or smaller "
        "max_tokens; what was answered before is kept"
    )


def _sendable(error: Exception) -> Exception:
    """The error itself if it survives being sent, else its text; with where it happened as a note."""
    where = traceback.format_exc()
    try:
        sent: Exception = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a foreign exception does
        sent = RuntimeError(f"{type(error).__name__}: {error}")
    sent.add_note(where)
    return sent
