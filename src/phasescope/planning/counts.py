"""What will be asked: the very trials of the run are drawn and counted, so that the numbers are exact."""

from __future__ import annotations

import time
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
        table: positions of all trials; None where no question is asked in two layouts.
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
    number = trials = longest = prompt = shared = new = 0
    seconds, first, facts = 0.0, list[Batch](), list[Trial]()
    while True:
        started = time.perf_counter()
        batch = next(batches, None)
        seconds += time.perf_counter() - started
        if batch is None:
            break
        number, trials = number + 1, trials + len(batch)
        longest = max(longest, *(len(trial.prompt_ids) + trial.new_tokens for trial in batch))
        prompt += sum(len(trial.prompt_ids) for trial in batch)
        shared += sum(context.tokens for context in contexts(batch))
        new += sum(trial.new_tokens for trial in batch)
        first += [batch] if len(first) < SAMPLES else []
        facts += map(_without_prompt, batch)
    table = planned_table(facts)
    layouts = table.n_layouts
    return Counts(number, trials, layouts, longest, prompt, shared, new, seconds, table, tuple(first))


def _without_prompt(trial: Trial) -> Trial:
    """The trial with a prompt that has its length and takes no memory."""
    return Trial(
        range(len(trial.prompt_ids)),  # type: ignore[arg-type]
        (),
        (),
        trial.source_position,
        trial.block,
        trial.cluster,
        trial.layout,
    )
