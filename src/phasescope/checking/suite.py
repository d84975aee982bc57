"""The invariance suite: ask, compare with the floor, settle ties, confirm on fresh prompts, fold, shrink."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import UsageError
from .cases import PromptCase, PromptPlan
from .comparator import TAIL, Comparator, Comparison
from .engine import EngineUnderTest, NotOfferedError
from .fold import Pattern, fold
from .invariances import INVARIANCES, Invariance
from .reader import CachedReader
from .shrink import shrunk
from .verdict import Effect, Outcome, Reproduction, State, Verdict, decide

Report = Callable[[str, int, int], None]
"""Called with what is being checked, the invariances that are done, and all."""

MOST_NEW = 64
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

    def row(self, name: str, rows: dict[str, Outcome]) -> Outcome:
        """Check one invariance; `rows` are those before it."""
        invariance = INVARIANCES[name]
        try:
            comparisons = [
                self.comparator.compared(invariance, case, self.comparator.plain)
                for case in invariance.cases(self.plan)
            ]
        except NotOfferedError as missing:
            state: State = "absent" if missing.absent else "hidden"
            return Outcome(feature=name, says=invariance.says, state=state, note=str(missing))
        if not comparisons:
            return Outcome(
                feature=name,
                says=invariance.says,
                state="absent",
                note="prompts this short have no such case",
            )
        failing = self.comparator.failing(comparisons)
        if name == "repeat":
            return self._repeat_row(invariance, comparisons)
        if not failing:
            return self._row(name, "holds", comparisons)
        return self._failed_row(name, comparisons, failing, rows)

    def _repeat_row(self, invariance: Invariance, comparisons: list[Comparison]) -> Outcome:
        """Equal calls that differ are no fault by themselves; they are the floor of all others."""
        loud = self.comparator.loud
        note = f"equal calls differ by up to {self.comparator.floor:.1e}, and what is smaller cannot be comparisons"
        return self._row("repeat", "unstable" if loud else "holds", comparisons, note=note if loud else "")

    def _failed_row(
        self, name: str, comparisons: list[Comparison], failing: list[Comparison], rows: dict[str, Outcome]
    ) -> Outcome:
        """What stands behind failures: ties, a simpler invariance, chance, or a fault of this one."""
        invariance = INVARIANCES[name]
        broken = {key for key, row in rows.items() if row.state in ("fault", "inherits")}
        reader = self.comparator.plain
        if self.comparator.chooses(invariance, failing):
            reader = self.comparator.settled
            with self.comparator.mode(reader):
                comparisons = [self.comparator.compared(invariance, one.case, reader) for one in comparisons]
            settled = self.comparator.failing(comparisons)
            if not settled:
                return self._tied(name, comparisons, failing)
            failing = settled
        with self.comparator.mode(reader):
            looked = [
                (one.case, self.comparator.stands(invariance, one.case, reader))
                for one in self.comparator.some(failing)
            ]
            own = [case for case, why in looked if why == "stands"]
            if not own and any(why == "inherits" for _, why in looked):
                base = invariance.base or ""
                return self._row(name, "inherits", comparisons, note=f"as {INVARIANCES[base].says} does")
            if not own:
                flipped = any(why == "ties" for _, why in looked)
                return self._row(
                    name, "ties" if flipped else "unstable", comparisons, note=FLIPPED if flipped else GONE
                )
            if invariance.base in broken and invariance.loose:
                note = f"it builds on {INVARIANCES[invariance.base].says}, which is at fault"
                return self._row(name, "inherits", comparisons, note=note)
            if not self.comparator.confirmed(invariance, own, reader):
                return self._row(name, "unstable", comparisons, note=GONE)
            like = max(own, key=lambda case: len(case.prompt))
            more = [
                self.comparator.compared(invariance, case, reader)
                for case in invariance.refine(self.plan, like)
            ]
            return self._fault_row(name, comparisons + more, own, reader, rows)

    def _fault_row(
        self,
        name: str,
        comparisons: list[Comparison],
        own: list[PromptCase],
        reader: CachedReader,
        rows: dict[str, Outcome],
    ) -> Outcome:
        facts = [(one.case.coordinates(), one.gap > self.comparator.tolerance) for one in comparisons]
        pattern = fold(facts, self.plan.strides)
        if not self._could_only_be_the_engine(pattern, rows):
            return self._row(name, "ties", comparisons, note=BLIND)
        shortest = min(own, key=lambda case: len(case.prompt))
        least = self._shrunk(INVARIANCES[name], shortest, reader, pattern.stride if pattern else None)
        shown = self.comparator.compared(INVARIANCES[name], least, reader)
        smallest = Reproduction(
            prompt_ids=least.prompt,
            cut=least.cut,
            other_ids=least.other if least.pads is None else (),
            pads=least.pads,
            gap=shown.gap if np.isfinite(shown.gap) else None,
            raised=shown.raised,
        )
        return self._row(name, "fault", comparisons, pattern=pattern, smallest=smallest)

    def _could_only_be_the_engine(self, pattern: Pattern | None, rows: dict[str, Outcome]) -> bool:
        """Whether equal scores are ruled out: they are seen, or absent, or silent elsewhere, or would need a pattern.

        Where scores cannot be seen, two things speak against them: they would also move what a longer prompt
        or a prefill of the engine's own words says, and they do not follow a residue.
        """
        if self.comparator.sees_scores or self.comparator.engine.selects is False:
            return True
        quiet = [rows[name].state for name in CLEAN if name in rows]
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
        return self._row(name, "ties", comparisons, failed=len(failing), note=note)

    def _row(
        self,
        name: str,
        state: State,
        comparisons: Sequence[Comparison],
        failed: int | None = None,
        **more: object,
    ) -> Outcome:
        bad = self.comparator.failing(comparisons) if name != "repeat" else []
        finite = [one.gap for one in comparisons if np.isfinite(one.gap)]
        raised = sorted({one.raised for one in comparisons if one.raised})
        return Outcome(
            feature=name,
            says=INVARIANCES[name].says,
            state=state,
            cases=len(comparisons),
            failed=len(bad) if failed is None else failed,
            raised=raised[0] if raised else "",
            largest_gap=max(finite, default=None),
            lengths=tuple(sorted({len(one.case.prompt) for one in bad})),
            **more,
        )


def check(
    engine: EngineUnderTest,
    *,
    strides: Sequence[int],
    seed: int = 0,
    features: Sequence[str] | None = None,
    new: int = 3,
    longest: int | None = None,
    sizes: int = 24,
    sweep: int = 256,
    effect: Effect | None = None,
    report: Report = lambda what, done, total: None,
) -> Verdict:
    """Hold an engine to every invariance that it offers, and say who is at fault.

    Args:
        engine: the engine.
        strides: of every grid that may matter: the model's windows, the engine's chunks, pages and tiles.
        seed: of every draw.
        features: names of invariances; by default all.
        new: tokens of the greedy continuation that is compared.
        longest: the longest prompt; by default two periods of the longest stride and some, or what is needed
            to read 256 consecutive lengths, within what the engine takes.
        sizes: cases of each invariance.
        sweep: consecutive lengths that are read in one piece, to find a single length that goes wrong.
        effect: what `measure` found with this engine.
        report: told how far the check is.

    Raises:
        UsageError: for settings that do not fit.
    """
    rng = np.random.default_rng([seed, *b"check"])
    reach = max(2 * max(strides, default=8) + 9, sweep + 1)
    top = min(engine.longest - 2 * new - TAIL, reach if longest is None else longest)
    if not 1 <= new <= MOST_NEW or sizes < 1 or sweep < 0:
        raise UsageError(
            f"new {new}, sizes {sizes}, sweep {sweep}: give 1 to {MOST_NEW}, at least 1 and at least 0"
        )
    plan = PromptPlan(tuple(sorted(set(strides))), top, engine.ids, rng, sweep=sweep, sizes=sizes)
    comparator = Comparator(engine, plan, new)
    suite = _Suite(comparator)
    names = _named(features)
    report("floor", 0, len(names))
    comparator.measure_floor()
    rows: dict[str, Outcome] = {}
    for done, name in enumerate(names):
        report(name, done, len(names))
        rows[name] = suite.row(name, rows)
    report("done", len(names), len(names))
    decision, sentence = decide(tuple(rows.values()), effect)
    return Verdict(
        facts=engine.facts(),
        strides=plan.strides,
        seed=seed,
        floor=comparator.floor,
        rounding=comparator.rounding,
        tolerance=comparator.tolerance,
        equal_scores=engine.equal_scores,
        decision=decision,
        sentence=sentence,
        rows=tuple(rows.values()),
        effect=effect,
    )


def _named(features: Sequence[str] | None) -> list[str]:
    """Invariances by name, in the table's order; the determinism floor always first."""
    if features is None:
        return list(INVARIANCES)
    unknown = [name for name in features if name not in INVARIANCES]
    if unknown:
        raise UsageError(f"unknown invariance {unknown[0]!r}; known: {', '.join(INVARIANCES)}")
    return [name for name in INVARIANCES if name in features or name == "repeat"]
