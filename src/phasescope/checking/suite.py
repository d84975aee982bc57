"""The invariance suite: ask, compare with the floor, settle ties, confirm on fresh prompts, fold, shrink."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import UsageError
from .asker import CachedReader
from .cases import Case, Plan
from .fold import Pattern, fold
from .invariances import INVARIANCES, Invariance
from .judge import TAIL, Comparator, Judged
from .shrink import shrunk
from .subject import EngineUnderTest, NotOfferedError
from .verdict import Effect, Reproduction, Row, State, Verdict, decide

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
    """One check of one subject."""

    def __init__(self, judge: Comparator) -> None:
        self.judge, self.plan = judge, judge.plan

    def row(self, name: str, rows: dict[str, Row]) -> Row:
        """Check one invariance; `rows` are those before it."""
        invariance = INVARIANCES[name]
        try:
            judged = [
                self.judge.compared(invariance, case, self.judge.plain)
                for case in invariance.cases(self.plan)
            ]
        except NotOfferedError as missing:
            state: State = "absent" if missing.absent else "hidden"
            return Row(feature=name, says=invariance.says, state=state, note=str(missing))
        if not judged:
            return Row(
                feature=name,
                says=invariance.says,
                state="absent",
                note="prompts this short have no such case",
            )
        failing = self.judge.failing(judged)
        if name == "repeat":
            return self._repeat_row(invariance, judged)
        if not failing:
            return self._row(name, "holds", judged)
        return self._failed_row(name, judged, failing, rows)

    def _repeat_row(self, invariance: Invariance, judged: list[Judged]) -> Row:
        """Equal calls that differ are no fault by themselves; they are the floor of all others."""
        loud = self.judge.loud
        note = f"equal calls differ by up to {self.judge.floor:.1e}, and what is smaller cannot be judged"
        return self._row("repeat", "unstable" if loud else "holds", judged, note=note if loud else "")

    def _failed_row(
        self, name: str, judged: list[Judged], failing: list[Judged], rows: dict[str, Row]
    ) -> Row:
        """What stands behind failures: ties, a simpler invariance, chance, or a fault of this one."""
        invariance = INVARIANCES[name]
        broken = {key for key, row in rows.items() if row.state in ("fault", "inherits")}
        ask = self.judge.plain
        if self.judge.chooses(invariance, failing):
            ask = self.judge.settled
            with self.judge.mode(ask):
                judged = [self.judge.compared(invariance, one.case, ask) for one in judged]
            settled = self.judge.failing(judged)
            if not settled:
                return self._tied(name, judged, failing)
            failing = settled
        with self.judge.mode(ask):
            looked = [
                (one.case, self.judge.stands(invariance, one.case, ask)) for one in self.judge.some(failing)
            ]
            own = [case for case, why in looked if why == "stands"]
            if not own and any(why == "inherits" for _, why in looked):
                base = invariance.base or ""
                return self._row(name, "inherits", judged, note=f"as {INVARIANCES[base].says} does")
            if not own:
                flipped = any(why == "ties" for _, why in looked)
                return self._row(
                    name, "ties" if flipped else "unstable", judged, note=FLIPPED if flipped else GONE
                )
            if invariance.base in broken and invariance.loose:
                note = f"it builds on {INVARIANCES[invariance.base].says}, which is at fault"
                return self._row(name, "inherits", judged, note=note)
            if not self.judge.confirmed(invariance, own, ask):
                return self._row(name, "unstable", judged, note=GONE)
            like = max(own, key=lambda case: len(case.prompt))
            more = [self.judge.compared(invariance, case, ask) for case in invariance.refine(self.plan, like)]
            return self._fault_row(name, judged + more, own, ask, rows)

    def _fault_row(
        self, name: str, judged: list[Judged], own: list[Case], ask: CachedReader, rows: dict[str, Row]
    ) -> Row:
        facts = [(one.case.coordinates(), one.gap > self.judge.tolerance) for one in judged]
        pattern = fold(facts, self.plan.strides)
        if not self._could_only_be_the_engine(pattern, rows):
            return self._row(name, "ties", judged, note=BLIND)
        shortest = min(own, key=lambda case: len(case.prompt))
        least = self._shrunk(INVARIANCES[name], shortest, ask, pattern.stride if pattern else None)
        shown = self.judge.compared(INVARIANCES[name], least, ask)
        smallest = Reproduction(
            prompt_ids=least.prompt,
            cut=least.cut,
            other_ids=least.other if least.pads is None else (),
            pads=least.pads,
            gap=shown.gap if np.isfinite(shown.gap) else None,
            raised=shown.raised,
        )
        return self._row(name, "fault", judged, pattern=pattern, smallest=smallest)

    def _could_only_be_the_engine(self, pattern: Pattern | None, rows: dict[str, Row]) -> bool:
        """Whether equal scores are ruled out: they are seen, or absent, or silent elsewhere, or would need a pattern.

        Where scores cannot be seen, two things speak against them: they would also move what a longer prompt
        or a prefill of the engine's own words says, and they do not follow a residue.
        """
        if self.judge.sees_scores or self.judge.subject.selects is False:
            return True
        quiet = [rows[name].state for name in CLEAN if name in rows]
        if "holds" in quiet and set(quiet) <= {"holds", "hidden", "absent"}:
            return True
        return pattern is not None and math.comb(pattern.failed + pattern.passed, pattern.failed) >= UNLIKELY

    def _shrunk(self, invariance: Invariance, case: Case, ask: CachedReader, stride: int | None) -> Case:
        """The case with as few tokens as still fail."""
        least = shrunk(case, stride, lambda smaller: self.judge.fails(invariance, smaller, ask))
        return least if self.judge.stands(invariance, least, ask) == "stands" else case

    def _tied(self, name: str, judged: list[Judged], failing: list[Judged]) -> Row:
        note = (
            f"{len(failing)} of {len(judged)} cases differ, by up to {max(one.gap for one in failing):.1e}, "
            "through choices among equal scores; with these settled in one order nothing differs"
        )
        return self._row(name, "ties", judged, failed=len(failing), note=note)

    def _row(
        self, name: str, state: State, judged: Sequence[Judged], failed: int | None = None, **more: object
    ) -> Row:
        bad = self.judge.failing(judged) if name != "repeat" else []
        finite = [one.gap for one in judged if np.isfinite(one.gap)]
        raised = sorted({one.raised for one in judged if one.raised})
        return Row(
            feature=name,
            says=INVARIANCES[name].says,
            state=state,
            cases=len(judged),
            failed=len(bad) if failed is None else failed,
            raised=raised[0] if raised else "",
            largest_gap=max(finite, default=None),
            lengths=tuple(sorted({len(one.case.prompt) for one in bad})),
            **more,
        )


def check(
    subject: EngineUnderTest,
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
        subject: the engine.
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
    top = min(subject.longest - 2 * new - TAIL, reach if longest is None else longest)
    if not 1 <= new <= MOST_NEW or sizes < 1 or sweep < 0:
        raise UsageError(
            f"new {new}, sizes {sizes}, sweep {sweep}: give 1 to {MOST_NEW}, at least 1 and at least 0"
        )
    plan = Plan(tuple(sorted(set(strides))), top, subject.ids, rng, sweep=sweep, sizes=sizes)
    judge = Comparator(subject, plan, new)
    suite = _Suite(judge)
    names = _named(features)
    report("floor", 0, len(names))
    judge.measure_floor()
    rows: dict[str, Row] = {}
    for done, name in enumerate(names):
        report(name, done, len(names))
        rows[name] = suite.row(name, rows)
    report("done", len(names), len(names))
    decision, sentence = decide(tuple(rows.values()), effect)
    return Verdict(
        facts=subject.facts(),
        strides=plan.strides,
        seed=seed,
        floor=judge.floor,
        rounding=judge.rounding,
        tolerance=judge.tolerance,
        equal_scores=subject.equal_scores,
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
