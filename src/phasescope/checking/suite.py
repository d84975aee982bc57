"""The invariance suite: ask every invariance, judge what fails, and say who is at fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from .cases import PromptPlan
from .comparator import TAIL, Comparator, Comparison
from .engine import EngineUnderTest, NotOfferedError
from .failures import Failures, Tried
from .floor import FAR
from .invariances import INVARIANCES, ONE_BY_ONE, Invariance
from .lossy import invariances, kind_of, must_differ
from .settings import SuiteSettings
from .verdict import Effect, Outcome, Reproduction, Verdict, decide

Report = Callable[[str, int, int], None]
"""Called with what is being checked, the invariances that are done, and all."""

DESIGN = (
    "{failed} of {cases} cases differ, by up to {gap:.1e}, as they must where the engine is {kind} by design"
)
HIDDEN = "nothing differs by more than equal calls do ({floor:.1e}), and what is smaller cannot be judged"


class _Suite:
    """One check of one engine."""

    def __init__(self, comparator: Comparator, lossy: str | None) -> None:
        self.comparator, self.lossy = comparator, lossy
        self.table, self.by_design = invariances(lossy), must_differ(lossy)
        self.found: dict[str, Outcome] = {}
        self.failures = Failures(comparator, self.found)

    def outcomes(self, names: Sequence[str], report: Report) -> tuple[Outcome, ...]:
        """Check invariances in their order."""
        for done, name in enumerate(names):
            report(name, done, len(names))
            self.found[name] = self._repeat() if name == "repeat" else self._checked(name, self.table[name])
            if name == "prefill":
                self._by_steps(self.found[name].state == "hidden")
        if "prefill" not in self.found or self.found["prefill"].state != "fault":
            self._by_steps(bool(self.failures.judge.blamed))
        report("done", len(names), len(names))
        return tuple(self.found[name] for name in INVARIANCES if name in self.found)

    def _by_steps(self, wanted: bool) -> None:
        """Compare the prompt in one piece with its tokens one by one, where no longer prompt can or others accuse it.

        A fault there is the prefill's; that it holds is told where nothing else is.
        """
        hidden = "prefill" in self.found and self.found["prefill"].state == "hidden"
        if wanted or self.failures.judge.longer:
            slow = self._checked("prefill", ONE_BY_ONE)
            if slow.state == "fault" or (hidden and slow.state == "holds"):
                self.found["prefill"] = slow

    def _checked(self, name: str, invariance: Invariance) -> Outcome:
        """One invariance; those before it are known."""
        comparator = self.comparator
        reader, told = comparator.plain, self.failures.told
        nothing = Tried(name, invariance, [], reader)
        try:
            comparisons = [
                comparator.compared(invariance, case, reader) for case in invariance.cases(comparator.plan)
            ]
        except NotOfferedError as missing:
            return told(nothing, "absent" if missing.absent else "hidden", note=str(missing))
        if not comparisons:
            return told(nothing, "absent", note="prompts this short have no such case")
        tried, failed = Tried(name, invariance, comparisons, reader), comparator.failing(comparisons)
        if not failed and comparator.loud:
            return told(tried, "unstable", note=HIDDEN.format(floor=comparator.equal.floor))
        if not failed:
            return told(tried, "holds")
        if name in self.by_design:
            gap = max(one.gap for one in failed)
            words = {
                "failed": len(failed),
                "cases": len(comparisons),
                "gap": gap,
                "kind": kind_of(self.lossy),
            }
            return told(tried, "lossy", note=DESIGN.format(**words))
        return self.failures.outcome(tried)

    def _repeat(self) -> Outcome:
        """Equal calls that differ by chance are the floor of all others; by what was asked before, a fault."""
        equal, told = self.comparator.equal, self.failures.told
        gaps = [Comparison(case, gap) for case, gap in zip(equal.cases, equal.gaps, strict=True)]
        tried = Tried("repeat", INVARIANCES["repeat"], gaps, self.comparator.plain)
        if equal.state:
            bad = [one for one in gaps if one.gap > min(self.comparator.tolerance, FAR)]
            least = min(bad, key=lambda one: len(one.case.prompt))
            smallest = Reproduction(prompt_ids=least.case.prompt, gap=least.gap)
            return told(tried, "fault", bad, smallest=smallest, note=equal.state)
        if not self.comparator.loud:
            return told(tried, "holds", [])
        note = f"equal calls differ by up to {equal.floor:.1e}, and what is smaller cannot be judged"
        return told(tried, "unstable", [], note=note)


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
    names = _named(given.features)
    report("floor", 0, len(names))
    comparator = Comparator(engine, plan, given.new)
    rows = _Suite(comparator, given.lossy).outcomes(names, report)
    decision, sentence = decide(rows, effect)
    return Verdict(
        facts=engine.facts(),
        strides=plan.strides,
        seed=given.seed,
        floor=max(comparator.equal.gaps),
        rounding=comparator.rounding,
        spread=comparator.spread,
        tolerance=comparator.tolerance,
        equal_scores=engine.equal_scores,
        decision=decision,
        sentence=sentence,
        rows=rows,
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
