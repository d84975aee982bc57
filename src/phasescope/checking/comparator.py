"""What a difference means: noise, choices among equal scores, a simpler way's fault, or a failure that stands."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import UsageError
from .cases import PromptCase, PromptPlan, spread
from .engine import EngineUnderTest, Ids, NotOfferedError, gap
from .invariances import INVARIANCES, Invariance
from .reader import CachedReader

EPS_MARGIN = 32  # times the rounding of one number
REPEAT_MARGIN = 4  # times the largest difference between two equal calls
LOUD = 0.01  # of a log-probability: equal calls that differ by more hide faults that matter
NOISE_MARGIN = 5  # times what a rounding error in every layer changes
FLIP_MARGIN = 4  # the same at one prompt, where a choice may flip
NOISE_DRAWS = 4
JUDGED = 5  # failures of one invariance that are looked into
CONFIRMED = 3  # fresh prompts on which it must show again
TAIL = 16  # tokens that stand behind a prompt to see it inside a longer one

Meaning = Literal["unstable", "inherits", "ties", "stands"]


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
        floor: the largest difference between equal calls.
        rounding: what a rounding error in every layer changes; None where that cannot be seen.
        tolerance: differences up to here are none.
        sees_scores: whether the engine shows the scores that its model chooses by.
    """

    def __init__(self, engine: EngineUnderTest, plan: PromptPlan, new: int) -> None:
        self.engine, self.plan = engine, plan
        self.new = new
        fixed = plan.tokens(TAIL)
        self.plain = CachedReader(engine, new, fixed)
        self.settled = CachedReader(engine, new, fixed)
        self.floor = 0.0
        self.rounding: float | None = None
        self.tolerance = EPS_MARGIN * engine.eps
        self.sees_scores = self._sees()

    def _sees(self) -> bool:
        try:
            with self.engine.settled():
                return True
        except NotOfferedError:
            return False

    def measure_floor(self) -> None:
        """Differences between equal calls, and what a rounding error in every layer changes.

        Raises:
            UsageError: if the engine gives no finite log-probabilities.
        """
        repeat = INVARIANCES["repeat"]
        cases = list(repeat.cases(self.plan))
        self.floor = max(self.compared(repeat, case, self.plain).gap for case in cases)
        if not np.isfinite(self.floor):
            raise UsageError(f"{self.engine.name} gives no finite log-probabilities; check its weights")
        try:
            noise = [gap for case in cases for gap in self._noise(case.prompt, self.plain, 2)]
            self.rounding = float(np.median(noise))
        except NotOfferedError:
            self.rounding = None
        self.tolerance = max(
            self.tolerance, REPEAT_MARGIN * self.floor, NOISE_MARGIN * (self.rounding or 0.0)
        )

    @property
    def loud(self) -> bool:
        """Whether equal calls differ by so much that faults may hide."""
        return self.floor > max(EPS_MARGIN * self.engine.eps, LOUD)

    def mode(self, reader: CachedReader) -> AbstractContextManager[None]:
        """Within it, the engine chooses among equal scores as this asker's readings have it."""
        return self.engine.settled() if reader is self.settled else nullcontext()

    def compared(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> Comparison:
        """Read a case both ways."""
        if invariance.reference is None:
            reference = reader.whole(case.prompt, invariance.new(self.new))
        else:
            reference = invariance.reference(reader, case)
        reading = invariance.read(reader, case)
        return Comparison(case, gap(reference, reading), reading.failed)

    def failing(self, comparisons: Sequence[Comparison]) -> list[Comparison]:
        """Those that differ."""
        return [one for one in comparisons if one.gap > self.tolerance]

    def some(self, failing: list[Comparison]) -> list[Comparison]:
        """The failures that are looked into, evenly over their order."""
        cases = spread([one.case for one in failing], JUDGED)
        return [one for one in failing if one.case in cases][:JUDGED]

    def fails(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> bool:
        """Whether a case fails by itself."""
        failed = self.compared(invariance, case, reader).gap > self.tolerance
        return failed and not self.inherits(invariance, case, reader)

    def stands(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> Meaning:
        """Whether a failure stands: again, beyond what flipped choices explain, and not through a simpler one."""
        first = self.compared(invariance, case, CachedReader(self.engine, self.new, reader.fixed))
        if first.gap <= self.tolerance:
            return "unstable"
        if self.inherits(invariance, case, reader):
            return "inherits"
        try:
            noise = max(self._noise(case.prompt, reader, NOISE_DRAWS))
        except NotOfferedError:
            noise = 0.0
        return "ties" if first.gap <= FLIP_MARGIN * noise else "stands"

    def inherits(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> bool:
        """Whether a simpler way of reading fails alike, so that this one adds no fault.

        Every way begins with a prefill: of the prompt, as the reference is, or of what stands before the cut.
        """
        prefill = INVARIANCES["prefill"]
        if invariance in (prefill, INVARIANCES["repeat"]):
            return False
        try:
            for end in {len(case.prompt), case.cut or len(case.prompt)}:
                if self.compared(prefill, PromptCase(case.prompt[:end]), reader).gap > self.tolerance:
                    return True
        except NotOfferedError:
            pass  # the prompt in one piece is then taken for right
        if invariance.base_read is None:
            return False
        try:
            base = invariance.base_read(reader, case)
            reading = invariance.read(reader, case)
        except NotOfferedError:
            return False
        return gap(base, reading) <= self.tolerance

    def confirmed(self, invariance: Invariance, own: list[PromptCase], reader: CachedReader) -> bool:
        """Whether most fresh prompts of the same shape fail too."""
        failed = 0
        for index in range(CONFIRMED):
            fresh = own[index % len(own)].redrawn(self.plan.ids, self.plan.rng)
            failed += self.stands(invariance, fresh, reader) == "stands"
        return 2 * failed > CONFIRMED

    def chooses(self, invariance: Invariance, failing: list[Comparison]) -> bool:
        """Whether the model had to choose among equal scores in any of some failures."""
        before = self.engine.equal_scores
        if not self.sees_scores:
            return False
        with self.engine.settled():
            for one in self.some(failing):
                self.compared(invariance, one.case, self.settled)
        return self.engine.equal_scores > before

    def _noise(self, prompt: Ids, reader: CachedReader, draws: int) -> list[float]:
        reference = reader.whole(prompt, self.new)
        return [gap(reference, self.engine.noisy(prompt, self.new, self.plan.rng)) for _ in range(draws)]
