"""The size of a run: its own trials are drawn and counted, so that the numbers are exact."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..backends.prefixes import contexts
from ..protocols import Batch
from ..records import Trial
from ..statistics.power import planned_table
from ..statistics.table import Table

SAMPLES = 3
"""Batches that are kept, for the calibration."""


@dataclass(frozen=True)
class Counts:
    """The trials of one condition.

    Attributes:
        batches: planned batches, one context each.
        trials: questions over all contexts and layouts.
        layouts: layouts of a context.
        longest: tokens of the longest prompt, with what is generated after it.
        prompt_tokens: of all prompts, each read whole.
        shared_tokens: the same when the questions of a layout share the reading of their prefix.
        new_tokens: at most generated.
        draw_seconds: that drawing the trials took.
        table: positions of all trials.
        first: the first few batches.
    """

    batches: int
    trials: int
    layouts: int
    longest: int
    prompt_tokens: int
    shared_tokens: int
    new_tokens: int
    draw_seconds: float
    table: Table
    first: tuple[Batch, ...]

    def read(self, *, share: bool) -> int:
        """Prompt tokens that will be read."""
        return self.shared_tokens if share else self.prompt_tokens


def count(batches: Iterator[Batch]) -> Counts:
    """Draw all batches, one at a time, and count.

    Raises:
        UsageError: if there are none, or no question is asked in two layouts.
    """
    first: list[Batch] = []
    seconds, longest, totals = 0.0, 0, Counter[str]()

    def drawn() -> Iterator[Trial]:
        nonlocal seconds, longest
        while True:
            started = time.perf_counter()
            batch = next(batches, None)
            seconds += time.perf_counter() - started
            if batch is None:
                return
            longest = max(longest, *(len(trial.prompt_ids) + trial.new_tokens for trial in batch))
            totals["batches"] += 1
            totals["trials"] += len(batch)
            totals["prompt"] += sum(len(trial.prompt_ids) for trial in batch)
            totals["shared"] += sum(context.tokens for context in contexts(batch))
            totals["new"] += sum(trial.new_tokens for trial in batch)
            if len(first) < SAMPLES:
                first.append(batch)
            yield from batch

    table = planned_table(drawn())
    return Counts(
        batches=totals["batches"],
        trials=totals["trials"],
        layouts=table.n_layouts,
        longest=longest,
        prompt_tokens=totals["prompt"],
        shared_tokens=totals["shared"],
        new_tokens=totals["new"],
        draw_seconds=seconds,
        table=table,
        first=tuple(first),
    )
