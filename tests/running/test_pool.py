"""How batches are dealt out, whatever order workers finish in and whoever dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from phasescope import Trial, UsageError
from phasescope.backends import BackendSpec, Planted
from phasescope.grid import WindowGrid
from phasescope.running.engine import Answer, Introduction
from phasescope.running.pool import Call, Done, Failed, Lost, Outcome, Pool
from phasescope.running.wire import unpack

SPEC = BackendSpec("planted", {"grid": WindowGrid(2, 2), "curve": (0.5, 0.5)})


class Imagined(Pool):
    """Workers that finish, err and die as the dice say; an answer is the first token of its batch."""

    def __init__(self, workers: int, seed: int, fatal: float = 0.0, errs: Sequence[int] = ()) -> None:
        super().__init__(workers)
        self.rng, self.fatal, self.errs = np.random.default_rng(seed), fatal, errs
        self.places: dict[int, Call | None] = {}
        self.started = 0

    def start_worker(self, place: int) -> None:
        assert place not in self.places
        self.places[place] = None
        self.started += 1

    def send(self, place: int, call: Call) -> None:
        assert self.places[place] is None
        self.places[place] = call

    def next(self) -> tuple[int, Outcome]:
        place = int(self.rng.choice([place for place, call in self.places.items() if call is not None]))
        call = self.places[place]
        assert call is not None
        if call.packed is None:
            self.places[place] = None
            return place, Done(Introduction({"number": call.number}, None))
        if self.rng.random() < self.fatal:
            del self.places[place]
            return place, Lost("killed")
        self.places[place] = None
        token = int(unpack(call.packed)[0].prompt_ids[0])
        return place, Failed(KeyError(token)) if token in self.errs else Done((call.number, token))

    def close(self) -> None:
        self.places = {}


def jobs(count: int, taken: list[int]) -> Iterator[tuple[int, list[Trial]]]:
    """Batches of one trial for two conditions in turn."""
    for token in range(count):
        taken.append(token)
        yield token % 2, [Trial((token,), (1,), (), 0, "b", "c", 0)]


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("fatal", [0.0, 0.15])
def test_answers_come_in_plan_order_though_workers_finish_in_any(workers: int, fatal: float) -> None:
    """Each batch once, from whoever lives, and never more than two batches a worker taken ahead."""
    pool = Imagined(workers, seed=2, fatal=fatal)
    pool.open([SPEC, SPEC.with_settings(seed=1)], [False, False])
    taken: list[int] = []
    for turn, answer in enumerate(pool.answer(jobs(60, taken))):
        assert answer == (turn % 2, turn)
        assert len(taken) <= turn + 1 + 2 * workers
    assert turn == 59
    assert (pool.started > workers) == bool(fatal)


def test_a_batch_over_which_workers_keep_dying_is_given_up_in_one_line() -> None:
    """Otherwise a batch too large for the memory would be tried for ever."""
    pool = Imagined(2, seed=0, fatal=1.0)
    pool.open([SPEC], [False])
    with pytest.raises(UsageError, match=r"3 workers died over the batch c \(killed\); if memory ran out"):
        list(pool.answer((0, batch) for _, batch in jobs(9, [])))


def test_an_error_comes_after_the_answers_before_it() -> None:
    """So that a run keeps all that was answered, as with one worker."""
    pool = Imagined(4, seed=1, errs=[7])
    pool.open([SPEC, SPEC], [False, False])
    seen: list[Answer] = []
    with pytest.raises(KeyError):
        seen.extend(pool.answer((0, batch) for _, batch in jobs(20, [])))
    assert seen == [(0, token) for token in range(7)]


def test_equal_specs_are_one_backend_and_live_backends_are_refused() -> None:
    """Conditions of one model under several protocols load it once; a model in memory can't be sent."""
    pool = Imagined(1, seed=0)
    other = SPEC.with_settings(seed=3)
    found = pool.open([SPEC, other, SPEC], [False, False, False])
    assert [introduction.description["number"] for introduction in found] == [0, 1, 0]
    with pytest.raises(UsageError, match="give a BackendSpec instead of Planted"):
        pool.open([Planted(grid=WindowGrid(2, 2), curve=(0.5, 0.5))], [True])


@pytest.mark.parametrize("workers", [0, -3])
def test_at_least_one_worker(workers: int) -> None:
    """None can't answer."""
    with pytest.raises(UsageError, match="give at least 1"):
        Imagined(workers, seed=0)
