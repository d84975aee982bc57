"""The invariance suite: ask, compare with the floor, settle ties, confirm on fresh prompts, fold, shrink."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from .cases import PromptCase, PromptPlan
from .comparator import TAIL, Comparator, Comparison, Meaning
from .engine import EngineUnderTest, NotOfferedError
from .fold import Pattern, fold
from .invariances import INVARIANCES, Invariance
from .reader import CachedReader
from .settings import SuiteSettings
from .shrink import shrunk
from .verdict import Effect, Outcome, Reproduction, State, Verdict, decide

Report = Callable[[str, int, int], None]
"""Called with what is being checked, the invariances that are done, and all."""

UNLIKELY = 10**4  # ways to place the failures, of which one separates the residues
CLEAN = ("prefill", "decode")  # ways of reading that use no cache of before and no other request
GONE = "differences did not show again on the same or on fresh prompts"
FLIPPED = (
    "differences no larger than what rounding errors change at these prompts, where nearly equal scores flip"
)
BLIND = (
    "differences that equal scores in the model may explain; decidable on a local model, or where the model "
    "is known to choose nothing by scores (--no-selection)"
)


class _Suite:
    """One check of one engine."""

    def __init__(self, comparator: Comparator) -> None:
        self.comparator, self.plan = comparator, comparator.plan

    def outcome(self, name: str, before: dict[str, Outcome]) -> Outcome:
        """Check one invariance; `before` are the outcomes of those that were checked already."""
        invariance, compared = INVARIANCES[name], self.comparator.compared
        try:
            comparisons = [
                compared(invariance, case, self.comparator.plain) for case in invariance.cases(self.plan)
            ]
        except NotOfferedError as missing:
            return self._outcome(name, "absent" if missing.absent else "hidden", note=str(missing))
        if not comparisons:
            return self._outcome(name, "absent", note="prompts this short have no such case")
        if name == "repeat":
            return self._repeat_outcome(comparisons)
        if not self.comparator.failing(comparisons):
            return self._outcome(name, "holds", comparisons)
        return self._failed_outcome(name, comparisons, before)

    def _repeat_outcome(self, comparisons: list[Comparison]) -> Outcome:
        """Equal calls that differ are no fault by themselves; they are the floor of all others."""
        if not self.comparator.loud:
            return self._outcome("repeat", "holds", comparisons)
        note = (
            f"equal calls differ by up to {self.comparator.floor:.1e}, and what is smaller cannot be judged"
        )
        return self._outcome("repeat", "unstable", comparisons, note=note)

    def _failed_outcome(
        self, name: str, comparisons: list[Comparison], before: dict[str, Outcome]
    ) -> Outcome:
        """What stands behind failures: ties, a simpler invariance, chance, or a fault of this one."""
        invariance, comparator = INVARIANCES[name], self.comparator
        reader, failing = comparator.plain, comparator.failing(comparisons)
        if comparator.chooses(invariance, failing):
            reader = comparator.settled
            with comparator.mode(reader):
                comparisons = [comparator.compared(invariance, one.case, reader) for one in comparisons]
            if not comparator.failing(comparisons):
                return self._tied(name, comparisons, failing)
            failing = comparator.failing(comparisons)
        with comparator.mode(reader):
            some = comparator.some(failing)
            meanings = [comparator.stands(invariance, one.case, reader) for one in some]
            own = [one.case for one, meaning in zip(some, meanings, strict=True) if meaning == "stands"]
            if not own:
                return self._excused(name, comparisons, meanings)
            base = before.get(invariance.base or "")
            if invariance.loose and base is not None and base.state in ("fault", "inherits"):
                note = f"it builds on {base.says}, which is at fault"
                return self._outcome(name, "inherits", comparisons, note=note)
            if not comparator.confirmed(invariance, own, reader):
                return self._outcome(name, "unstable", comparisons, note=GONE)
            longest = max(own, key=lambda case: len(case.prompt))
            comparisons += [
                comparator.compared(invariance, case, reader)
                for case in invariance.refine(self.plan, longest)
            ]
            return self._fault_outcome(name, comparisons, own, reader, before)

    def _excused(self, name: str, comparisons: list[Comparison], meanings: Sequence[Meaning]) -> Outcome:
        """Failures of which none stands."""
        if "inherits" in meanings:
            note = f"as {INVARIANCES[INVARIANCES[name].base or name].says} does"
            return self._outcome(name, "inherits", comparisons, note=note)
        if "ties" in meanings:
            return self._outcome(name, "ties", comparisons, note=FLIPPED)
        return self._outcome(name, "unstable", comparisons, note=GONE)

    def _fault_outcome(
        self,
        name: str,
        comparisons: list[Comparison],
        own: list[PromptCase],
        reader: CachedReader,
        before: dict[str, Outcome],
    ) -> Outcome:
        facts = [(one.case.coordinates(), one.gap > self.comparator.tolerance) for one in comparisons]
        pattern = fold(facts, self.plan.strides)
        if not self._could_only_be_the_engine(pattern, before):
            return self._outcome(name, "ties", comparisons, note=BLIND)
        shortest = min(own, key=lambda case: len(case.prompt))
        least = self._shrunk(INVARIANCES[name], shortest, reader, pattern.stride if pattern else None)
        shown = self.comparator.compared(INVARIANCES[name], least, reader)
        smallest = Reproduction(
            prompt_ids=least.prompt,
            cut=least.cut or None,
            other_ids=least.other if least.pads is None else (),
            pads=least.pads,
            gap=shown.gap if np.isfinite(shown.gap) else None,
            raised=shown.raised,
        )
        return self._outcome(name, "fault", comparisons, pattern=pattern, smallest=smallest)

    def _could_only_be_the_engine(self, pattern: Pattern | None, before: dict[str, Outcome]) -> bool:
        """Whether equal scores are ruled out: they are seen, or absent, or silent elsewhere, or would need a pattern.

        Where scores cannot be seen, two things speak against them: they would also move what a longer prompt
        or a prefill of the engine's own words says, and they do not follow a residue.
        """
        if self.comparator.sees_scores or self.comparator.engine.selects is False:
            return True
        quiet = [before[name].state for name in CLEAN if name in before]
        if "holds" in quiet and set(quiet) <= {"holds", "hidden", "absent"}:
            return True
        return pattern is not None and math.comb(pattern.failed + pattern.passed, pattern.failed) >= UNLIKELY

    def _shrunk(
        self, invariance: Invariance, case: PromptCase, reader: CachedReader, stride: int | None
    ) -> PromptCase:
        """The case with as few tokens as still fail."""
        least = shrunk(case, stride, lambda smaller: self.comparator.fails(invariance, smaller, reader))
        return least if self.comparator.stands(invariance, least, reader) == "stands" else case

    def _tied(self, name: str, comparisons: list[Comparison], failing: list[Comparison]) -> Outcome:
        note = (
            f"{len(failing)} of {len(comparisons)} cases differ, by up to {max(one.gap for one in failing):.1e}, "
            "through choices among equal scores; with these settled in one order nothing differs"
        )
        return self._outcome(name, "ties", comparisons, failed=len(failing), note=note)

    def _outcome(
        self,
        name: str,
        state: State,
        comparisons: Sequence[Comparison] = (),
        failed: int | None = None,
        **more: object,
    ) -> Outcome:
        bad = self.comparator.failing(comparisons) if name != "repeat" else []
        return Outcome(
            feature=name,
            says=INVARIANCES[name].says,
            state=state,
            cases=len(comparisons),
            failed=len(bad) if failed is None else failed,
            raised=min((one.raised for one in comparisons if one.raised), default=""),
            largest_gap=max((one.gap for one in comparisons if np.isfinite(one.gap)), default=None),
            lengths=tuple(sorted({len(one.case.prompt) for one in bad})),
            **more,
        )


def check(
    engine: EngineUnderTest,
    *,
    strides: Sequence[int],
    effect: Effect | None = None,
    report: Report = lambda what, done, total: None,
    **settings: Any,
) -> Verdict:
    """Hold an engine to every invariance that it offers, and say who is at fault.

    Args:
        engine: the engine.
        strides: of every grid that may matter: the model's windows, the engine's chunks, pages and tiles.
        effect: what `measure` found with this engine.
        report: told how far the check is.
        **settings: as `SuiteSettings` has them.

    Raises:
        UsageError: for settings that do not fit.
    """
    given = SuiteSettings.checked(**settings)
    reach = max(2 * max(strides, default=8) + 9, given.sweep + 1)
    top = min(engine.longest - 2 * given.new - TAIL, given.longest or reach)
    rng = np.random.default_rng([given.seed, *b"check"])
    plan = PromptPlan(tuple(sorted(set(strides))), top, engine.ids, rng, sweep=given.sweep, cases=given.cases)
    comparator = Comparator(engine, plan, given.new)
    suite = _Suite(comparator)
    names = _named(given.features)
    report("floor", 0, len(names))
    comparator.measure_floor()
    outcomes: dict[str, Outcome] = {}
    for done, name in enumerate(names):
        report(name, done, len(names))
        outcomes[name] = suite.outcome(name, outcomes)
    report("done", len(names), len(names))
    decision, sentence = decide(tuple(outcomes.values()), effect)
    return Verdict(
        facts=engine.facts(),
        strides=plan.strides,
        seed=given.seed,
        floor=comparator.floor,
        rounding=comparator.rounding,
        tolerance=comparator.tolerance,
        equal_scores=engine.equal_scores,
        decision=decision,
        sentence=sentence,
        rows=tuple(outcomes.values()),
        effect=effect,
    )


def _named(features: Sequence[str]) -> list[str]:
    """Invariances by name, in the table's order; the determinism floor always first."""
    if not features:
        return list(INVARIANCES)
    unknown = [name for name in features if name not in INVARIANCES]
    if unknown:
        raise UsageError(f"unknown invariance {unknown[0]!r}; known: {', '.join(INVARIANCES)}")
    return [name for name in INVARIANCES if name in features or name == "repeat"]
