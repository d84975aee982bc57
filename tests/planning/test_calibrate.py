"""A calibration asks few of the run's own trials, and its pace is that of the backend."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from phasescope import Reply, Trial, WindowGrid
from phasescope.backends import Planted
from phasescope.planning.calibrate import calibrate, tokens_read
from phasescope.protocols import Batch, PrefixPadding

PROTOCOL = PrefixPadding(pairs=9, contexts=3, residues=6)


@dataclass(kw_only=True)
class Clocked(Planted):
    """Takes a set time per prompt token that it reads, and per call."""

    share_prefix: bool = False
    concurrency: int = 4
    per_token: float = 0.0
    per_call: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls: list[int] = []

    def answer(self, trials: Sequence[Trial]) -> list[Reply]:
        self.calls.append(len(trials))
        replies = super().answer(trials)
        time.sleep(self.per_call + self.per_token * tokens_read(trials, share=self.share_prefix))
        return replies


def clocked(**settings: object) -> Clocked:
    return Clocked(grid=WindowGrid(2, 2), curve=(0.5, 0.5), **settings)  # type: ignore[arg-type]


def batches(backend: Planted) -> list[Batch]:
    return list(PROTOCOL.batches(backend.vocabulary(), np.random.default_rng(0)))


@pytest.mark.parametrize("share", [True, False])
def test_the_pace_is_that_of_the_backend(share: bool) -> None:
    """Within a tenth where nothing else runs; half as much again is left for a busy machine."""
    backend = clocked(share_prefix=share, per_token=2e-4)
    pace = calibrate(backend, PROTOCOL, batches(backend), budget=1.0)
    assert 2e-4 <= pace.seconds_per_token < 3e-4
    assert pace.tokens == backend.tokens
    assert pace.trials == sum(backend.calls)
    assert pace.seconds_per_trial > 0


def test_whole_batches_are_measured_where_they_fit_the_budget() -> None:
    """A layout alone would overestimate a backend whose calls have a cost of their own."""
    backend = clocked(share_prefix=True, per_call=0.02)
    planned = batches(backend)
    pace = calibrate(backend, PROTOCOL, planned, budget=2.0)
    assert backend.calls[2:] == [len(planned[0])] * 6
    assert pace.seconds_per_token * tokens_read(planned[0], share=True) == pytest.approx(0.02, rel=0.5)


def test_layouts_are_measured_where_a_batch_takes_too_long() -> None:
    """One to warm up, and then as many as the budget allows, at least one."""
    backend = clocked(share_prefix=True, per_call=0.05)
    calibrate(backend, PROTOCOL, batches(backend), budget=0.01)
    assert backend.calls == [PROTOCOL.asked] * 2


def test_a_server_is_sent_few_prompts() -> None:
    """One to warm up, then two groups of twice as many as it answers at once."""
    backend = clocked(concurrency=3)
    calibrate(backend, PROTOCOL, batches(backend), budget=9.0)
    assert backend.calls == [1, 6, 6]
