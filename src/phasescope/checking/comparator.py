"""Readings side by side: how far they are apart, and what of it rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from .cases import PromptCase, PromptPlan, spread
from .engine import Continuation, EngineUnderTest, Ids, NotOfferedError, gap
from .floor import FAR, Asked
from .invariances import INVARIANCES, Invariance
from .reader import CachedReader
from .spread import spread_of

EPS_MARGIN = 32  # times the rounding of one number
MOST_BY_SIZE = (
    0.25  # nats that this may be through the size of log-probabilities: coarse formats are measured
)
REPEAT_MARGIN = 4  # times the largest difference between two equal calls
LOUD = 0.01  # of a log-probability: equal calls that differ by more hide faults that matter
NOISE_MARGIN = 5  # times what a rounding error in every layer changes
SPREAD_MARGIN = 3  # times the upper quartile of what another shape changes
JUDGED = 5  # failures of one invariance that are looked into
TAIL = 16  # tokens that stand behind a prompt to see it inside a longer one


@dataclass(frozen=True)
class Comparison:
    """A case with the difference that it showed."""

    case: PromptCase
    gap: float
    raised: str = ""


class Comparator:
    """Compares readings of one engine.

    Args:
        engine: the engine.
        plan: what it is asked.
        new: tokens of the greedy continuation that is compared.

    Attributes:
        plain, settled: the engine as it is, and with equal scores chosen in one order.
        equal: what equal calls showed.
        rounding: what a rounding error in every layer changes; None where that cannot be seen.
        spread: what another shape changes, as batches and single rows both show it; None without batches.
        tolerance: differences up to here are none.
        sees_scores: whether the engine shows the scores that its model chooses by.
    """

    def __init__(self, engine: EngineUnderTest, plan: PromptPlan, new: int) -> None:
        self.engine, self.plan, self.new = engine, plan, new
        fixed = plan.tokens(TAIL)
        self.plain = CachedReader(engine, new, fixed)
        self.settled = CachedReader(engine, new, fixed)
        self.sees_scores = self._sees()
        asked = Asked(engine, list(INVARIANCES["repeat"].cases(plan)), new)
        if not np.isfinite(max(asked.gaps)):
            raise UsageError(f"{engine.name} gives no finite log-probabilities; check its weights")
        self.rounding = self._rounding(asked.cases)
        by_size = min(EPS_MARGIN * engine.eps * asked.size, MOST_BY_SIZE)
        near = max(EPS_MARGIN * engine.eps, by_size, NOISE_MARGIN * (self.rounding or 0.0))
        self.equal = asked.judged(near, max(FAR, near), lambda: self._asked_again(asked.cases))
        self.spread = spread_of(engine, plan, new)
        self.tolerance = max(near, REPEAT_MARGIN * self.equal.floor, SPREAD_MARGIN * (self.spread or 0.0))

    def _sees(self) -> bool:
        try:
            with self.engine.settled():
                return True
        except NotOfferedError:
            return False

    def _rounding(self, cases: Sequence[PromptCase]) -> float | None:
        try:
            return float(np.median([one for case in cases for one in self.noise(case.prompt, self.plain, 2)]))
        except NotOfferedError:
            return None

    def _asked_again(self, cases: Sequence[PromptCase]) -> Asked:
        fresh = [PromptCase(self.plan.tokens(len(case.prompt))) for case in cases]
        return Asked(self.engine, fresh, self.new)

    @property
    def loud(self) -> bool:
        """Whether equal calls differ by so much that faults may hide."""
        return self.equal.floor > max(EPS_MARGIN * self.engine.eps, LOUD)

    def mode(self, reader: CachedReader) -> AbstractContextManager[None]:
        """Within it, the engine chooses among equal scores as this asker's readings have it."""
        return self.engine.settled() if reader is self.settled else nullcontext()

    def fresh(self) -> CachedReader:
        """A reader that knows nothing yet."""
        return CachedReader(self.engine, self.new, self.plain.fixed)

    def both(
        self, invariance: Invariance, case: PromptCase, reader: CachedReader
    ) -> tuple[Continuation, Continuation]:
        """What a case must equal, and its reading."""
        if invariance.reference is None:
            reference = reader.whole(case.prompt, invariance.new(self.new))
        else:
            reference = invariance.reference(reader, case)
        return reference, invariance.read(reader, case)

    def compared(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> Comparison:
        """Read a case both ways."""
        reference, reading = self.both(invariance, case, reader)
        return Comparison(case, gap(reference, reading), reading.failed)

    def apart(self, one: Continuation, other: Continuation) -> bool:
        """Whether two readings differ."""
        return gap(one, other) > self.tolerance

    def failing(self, comparisons: Sequence[Comparison]) -> list[Comparison]:
        """Those that differ."""
        return [one for one in comparisons if one.gap > self.tolerance]

    def some(self, failing: list[Comparison]) -> list[Comparison]:
        """The failures that are looked into, evenly over their order."""
        cases = spread([one.case for one in failing], JUDGED)
        return [one for one in failing if one.case in cases][:JUDGED]

    def chooses(self, invariance: Invariance, failing: list[Comparison]) -> bool:
        """Whether the model had to choose among equal scores in any of some failures."""
        before = self.engine.equal_scores
        if not self.sees_scores:
            return False
        with self.engine.settled():
            for one in self.some(failing):
                self.compared(invariance, one.case, self.settled)
        return self.engine.equal_scores > before

    def noise(self, prompt: Ids, reader: CachedReader, draws: int) -> list[float]:
        """What rounding errors in every layer change at one prompt."""
        reference = reader.whole(prompt, self.new)
        return [gap(reference, self.engine.noisy(prompt, self.new, self.plan.rng)) for _ in range(draws)]
