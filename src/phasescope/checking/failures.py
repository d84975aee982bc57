"""What stands behind the failures of one invariance: ties, kernels, a simpler invariance, chance, or a fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .cases import PromptCase, spread
from .comparator import Comparator, Comparison
from .culprit import Judge, Judgement
from .fold import Pattern, fold
from .invariances import INVARIANCES, ONE_BY_ONE, Invariance, behind
from .reader import CachedReader
from .shrink import shrunk
from .spread import MOST
from .verdict import Outcome, Reproduction, State

UNLIKELY = 10**4  # ways to place the failures, of which one separates the residues
CHANCE = 1000  # ways to place what comes and goes among readings and equal calls, of which one puts all here
EQUAL_CALLS = 60
REREAD = 24
FEW_ROWS = 8  # rows that kernels for few rows take at most
ALIKE = 4  # times the median difference with few rows that the largest one may be
COARSE = 2.0**-12  # rounding from which on kernels may differ by so much without batches showing it
CLEAN = ("prefill", "decode")  # ways of reading that use no cache of before and no other request

GONE = "differences did not show again on the same or on fresh prompts"
FLIPPED = (
    "differences no larger than what rounding errors change at these prompts, where nearly equal scores flip"
)
BLIND = (
    "differences that equal scores in the model may explain; decidable on a local model, or where the model "
    "is known to choose nothing by scores (--no-selection)"
)
FEW = (
    "differences by up to {gap:.1e} wherever the last piece has {rows} and nowhere else: kernels for few rows that "
    "round otherwise than those for many, as quantised ones do, or a fault of all that is decoded; batches would tell"
)
BOTH = "no third reading says which side is wrong, this one or the prompt in one piece"
LONGER = "token by token the prompt gives what it does in one piece, so that it is the longer prompts that go wrong"
PREFILL = "through the prefill of just so many tokens, which differs by itself"
HALVES = "a prefill in two halves agrees with the prompt in one piece"
LOSSY = "if its cache is lossy by design, --lossy judges the rest"


@dataclass(frozen=True)
class Tried:
    """An invariance and how its cases compared.

    Attributes:
        name: its name in the table.
        invariance: how it was read.
        comparisons: of every case.
        reader: who read them.
    """

    name: str
    invariance: Invariance
    comparisons: list[Comparison]
    reader: CachedReader

    def rows(self, case: PromptCase) -> int:
        """Tokens of the last piece that is read."""
        if self.name in ("steps", "decode") or self.invariance is ONE_BY_ONE:
            return 1
        return len(case.prompt) - case.cut


class Failures:
    """Judges what was tried on one engine.

    Args:
        comparator: what reads and compares.
        before: the outcomes so far; filled by whoever judges.
    """

    def __init__(self, comparator: Comparator, before: Mapping[str, Outcome]) -> None:
        self.comparator, self.plan, self.before = comparator, comparator.plan, before
        self.judge = Judge(comparator)

    def outcome(self, tried: Tried) -> Outcome:
        """Of an invariance of which cases failed."""
        comparator = self.comparator
        failing = comparator.failing(tried.comparisons)
        if comparator.chooses(tried.invariance, failing):
            reader = comparator.settled
            with comparator.mode(reader):
                again = [comparator.compared(tried.invariance, one.case, reader) for one in tried.comparisons]
            settled = replace(tried, comparisons=again, reader=reader)
            if not comparator.failing(again):
                return self._tied(settled, failing)
            tried = settled
        if self._by_rows(tried):
            return self.told(tried, "spread", note=self._few(tried))
        with comparator.mode(tried.reader):
            return self._judged(tried)

    def told(
        self,
        tried: Tried,
        state: State,
        failed: Sequence[Comparison] | None = None,
        **more: object,
    ) -> Outcome:
        """The outcome of what was tried."""
        bad = self.comparator.failing(tried.comparisons) if failed is None else failed
        return Outcome(
            feature=tried.name,
            says=tried.invariance.says,
            state=state,
            cases=len(tried.comparisons),
            failed=len(bad),
            raised=min((one.raised for one in tried.comparisons if one.raised), default=""),
            largest_gap=max((one.gap for one in tried.comparisons if np.isfinite(one.gap)), default=None),
            lengths=tuple(sorted({len(one.case.prompt) for one in bad})),
            **more,
        )

    def _judged(self, tried: Tried) -> Outcome:
        comparator, invariance = self.comparator, tried.invariance
        some = comparator.some(comparator.failing(tried.comparisons))
        said = [self.judge.judged(invariance, one.case, tried.reader) for one in some]
        kinds = {"stands", "longer"}
        own = {one.case: told for one, told in zip(some, said, strict=True) if told.meaning in kinds}
        if not own:
            return self._excused(tried, said)
        base = self.before.get(invariance.base or "")
        if invariance.loose and base is not None and base.state in ("fault", "inherits", "spread"):
            return self.told(tried, "inherits", note=_built_on(base))
        if not self.judge.confirmed(invariance, list(own), tried.reader):
            return self.told(tried, "unstable", note=GONE)
        longest = max(own, key=lambda case: len(case.prompt))
        further = [
            comparator.compared(invariance, case, tried.reader)
            for case in invariance.refine(self.plan, longest)
        ]
        return self._fault(replace(tried, comparisons=tried.comparisons + further), own)

    def _excused(self, tried: Tried, said: Sequence[Judgement]) -> Outcome:
        """Failures of which none stands: another's, flipped choices, or now there and now not."""
        kinds = [one.meaning for one in said]
        if "inherits" in kinds:
            by = next(one.by for one in said if one.by)
            note = PREFILL if by == "prefill" else f"as {INVARIANCES[by].says} does"
            return self.told(tried, "inherits", note=note)
        if "other" in kinds:
            return self.told(tried, "inherits", note=HALVES)
        if "ties" in kinds:
            return self.told(tried, "ties", note=FLIPPED)
        return self._come_and_gone(tried)

    def _come_and_gone(self, tried: Tried) -> Outcome:
        """Differences that are not there each time: a fault of this way where equal calls in one piece show none."""
        compare, base = self.comparator, self.before.get(tried.invariance.base or "")
        asked = spread([one.case for one in tried.comparisons], REREAD)
        again = [compare.compared(tried.invariance, case, compare.fresh()) for case in asked]
        failed, calls = len(compare.failing(again)), len(again)
        rare = math.comb(calls + EQUAL_CALLS, failed) < CHANCE * math.comb(calls, failed)
        if rare or self._equal_calls_differ(tried):
            return self.told(tried, "unstable", note=GONE)
        if base is not None and base.state == "fault":
            return self.told(tried, "inherits", note=_built_on(base))
        note = f"it comes and goes: {failed} of {calls} readings anew, none of {EQUAL_CALLS} equal calls in one piece"
        least = min(compare.failing(tried.comparisons), key=lambda one: len(one.case.prompt))
        return self.told(tried, "fault", smallest=self._reproduction(tried, least), note=note)

    def _equal_calls_differ(self, tried: Tried) -> bool:
        compare = self.comparator
        cases = [one.case for one in compare.failing(tried.comparisons)]
        prompts = [case.prompt for case in spread(cases, EQUAL_CALLS // 10)]
        first = {prompt: compare.engine.whole(prompt, compare.new) for prompt in prompts}
        calls = (prompts * EQUAL_CALLS)[:EQUAL_CALLS]
        return any(compare.apart(first[one], compare.engine.whole(one, compare.new)) for one in calls)

    def _by_rows(self, tried: Tried) -> bool:
        """Whether failures need nothing but a last piece of few rows, and are no larger than kernels may differ."""
        compare = self.comparator
        if compare.spread is not None and compare.engine.eps < COARSE:
            return False  # batches would show what kernels change
        failing = compare.failing(tried.comparisons)
        most, largest = max(tried.rows(one.case) for one in failing), max(one.gap for one in failing)
        few = [one.gap for one in tried.comparisons if tried.rows(one.case) <= most]
        return most <= FEW_ROWS and largest <= min(MOST, ALIKE * float(np.median(few)))

    def _few(self, tried: Tried) -> str:
        failing = self.comparator.failing(tried.comparisons)
        most = max(tried.rows(one.case) for one in failing)
        rows = "one row" if most == 1 else f"{most} rows or fewer"
        return FEW.format(gap=max(one.gap for one in failing), rows=rows)

    def _fault(self, tried: Tried, own: Mapping[PromptCase, Judgement]) -> Outcome:
        tolerance = self.comparator.tolerance
        facts = [(one.case.coordinates(), one.gap > tolerance) for one in tried.comparisons]
        pattern = fold(facts, self.plan.strides)
        if not self._could_only_be_the_engine(pattern):
            return self.told(tried, "ties", note=BLIND)
        shortest = min(own, key=lambda case: len(case.prompt))
        least = self._shrunk(tried, shortest, pattern.stride if pattern else None)
        shown = self.comparator.compared(tried.invariance, least, tried.reader)
        notes = [BOTH] if any(said.side == "open" for said in own.values()) else []
        notes += [LONGER] if any(said.meaning == "longer" for said in own.values()) else []
        notes += [LOSSY] if tried.name == "parts" and all(bad for _, bad in facts) else []
        smallest = self._reproduction(tried, shown)
        return self.told(tried, "fault", pattern=pattern, smallest=smallest, note="; ".join(notes))

    def _reproduction(self, tried: Tried, shown: Comparison) -> Reproduction:
        """A case with all that it was read beside."""
        case = shown.case
        longer = tried.invariance is INVARIANCES["prefill"]
        return Reproduction(
            prompt_ids=case.prompt,
            cut=case.cut or None,
            other_ids=behind(tried.reader, case) if longer else case.other,
            pads=case.pads,
            gap=shown.gap if np.isfinite(shown.gap) else None,
            raised=shown.raised,
        )

    def _could_only_be_the_engine(self, pattern: Pattern | None) -> bool:
        """Whether equal scores are ruled out: they are seen, or absent, or silent elsewhere, or would need a pattern.

        Where scores cannot be seen, two things speak against them: they would also move what a longer prompt
        or a prefill of the engine's own words says, and they do not follow a residue.
        """
        if self.comparator.sees_scores or self.comparator.engine.selects is False:
            return True
        quiet = [self.before[name].state for name in CLEAN if name in self.before]
        if "holds" in quiet and set(quiet) <= {"holds", "hidden", "absent"}:
            return True
        return pattern is not None and math.comb(pattern.failed + pattern.passed, pattern.failed) >= UNLIKELY

    def _shrunk(self, tried: Tried, case: PromptCase, stride: int | None) -> PromptCase:
        """The case with as few tokens as still fail."""
        reader, kinds = tried.reader, {"stands", "longer"}
        least = shrunk(case, stride, lambda smaller: self.judge.fails(tried.invariance, smaller, reader))
        return least if self.judge.judged(tried.invariance, least, reader).meaning in kinds else case

    def _tied(self, tried: Tried, failing: list[Comparison]) -> Outcome:
        note = (
            f"{len(failing)} of {len(tried.comparisons)} cases differ, by up to {max(one.gap for one in failing):.1e}, "
            "through choices among equal scores; with these settled in one order nothing differs"
        )
        return self.told(tried, "ties", failed=failing, note=note)


def _built_on(base: Outcome) -> str:
    return f"it builds on {base.says}, which {'is at fault' if base.state == 'fault' else 'differs itself'}"
