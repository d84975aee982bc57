"""The invariance suite: ask, compare with the floor, settle ties, confirm on fresh prompts, fold, shrink."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np

from ..errors import UsageError
from .cases import Case, Plan, spread
from .fold import Pattern, fold
from .invariances import INVARIANCES, Invariance
from .subject import Ids, NotOfferedError, Reading, Subject, gap
from .verdict import Effect, Reproduction, Row, State, Verdict, decide

Report = Callable[[str, int, int], None]
"""Called with what is being checked, the invariances that are done, and all."""

EPS_MARGIN = 32  # times the rounding of one number
REPEAT_MARGIN = 4  # times the largest difference between two equal calls
LOUD = 0.01  # of a log-probability: equal calls that differ by more hide faults that matter
NOISE_MARGIN = 5  # times what a rounding error in every layer changes
FLIP_MARGIN = 4  # the same at one prompt, where a choice may flip
NOISE_DRAWS = 4
JUDGED = 5  # failures of one invariance that are looked into
CONFIRMED = 3  # fresh prompts on which it must show again
SHRINK_TRIES = 60
TAIL = 16  # tokens that stand behind a prompt to see it inside a longer one
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


@dataclass
class _Asker:
    """A subject that remembers what it read in one piece, for as long as one rule for ties holds."""

    subject: Subject
    new: int
    fixed: Ids
    known: dict[tuple[Ids, int], Reading] = field(default_factory=dict)
    longer: dict[tuple[Ids, int], Sequence[Reading]] = field(default_factory=dict)

    def whole(self, prompt: Ids, new: int) -> Reading:
        if (prompt, new) not in self.known:
            self.known[prompt, new] = self.subject.whole(prompt, new)
        return self.known[prompt, new]

    def inside(self, prompt: Ids, start: int) -> Sequence[Reading]:
        if (prompt, start) not in self.longer:
            if (
                len(self.longer) > 2
            ):  # a sweep asks three prompts again and again; a whole vocabulary is large
                self.longer.clear()
            self.longer[prompt, start] = self.subject.inside(prompt, start)
        return self.longer[prompt, start]

    def tail(self, count: int) -> Ids:
        return self.fixed[:count]


@dataclass(frozen=True)
class _Judged:
    """A case with the difference that it showed."""

    case: Case
    gap: float
    raised: str = ""


class _Suite:
    """One check of one subject."""

    def __init__(self, subject: Subject, plan: Plan, new: int) -> None:
        self.subject, self.plan = subject, plan
        self.new = new
        fixed = plan.tokens(TAIL)
        self.plain = _Asker(subject, new, fixed)
        self.settled = _Asker(subject, new, fixed)
        self.floor = 0.0
        self.rounding: float | None = None
        self.tolerance = EPS_MARGIN * subject.eps
        self.sees_scores = self._sees()

    def _sees(self) -> bool:
        """Whether the subject shows the scores that its model chooses by."""
        try:
            with self.subject.settled():
                return True
        except NotOfferedError:
            return False

    def measure_floor(self) -> None:
        """Differences between equal calls, and what a rounding error in every layer changes."""
        repeat = INVARIANCES["repeat"]
        cases = list(repeat.cases(self.plan))
        self.floor = max(self._gap(repeat, case, self.plain).gap for case in cases)
        if not np.isfinite(self.floor):
            raise UsageError(f"{self.subject.name} gives no finite log-probabilities; check its weights")
        try:
            noise = [gap for case in cases for gap in self._noise(case.prompt, self.plain, 2)]
            self.rounding = float(np.median(noise))
        except NotOfferedError:
            self.rounding = None
        self.tolerance = max(
            self.tolerance, REPEAT_MARGIN * self.floor, NOISE_MARGIN * (self.rounding or 0.0)
        )

    def _noise(self, prompt: Ids, ask: _Asker, draws: int) -> list[float]:
        reference = ask.whole(prompt, self.new)
        return [gap(reference, self.subject.noisy(prompt, self.new, self.plan.rng)) for _ in range(draws)]

    def _gap(self, invariance: Invariance, case: Case, ask: _Asker) -> _Judged:
        """Read a case both ways."""
        if invariance.reference is None:
            reference = ask.whole(case.prompt, invariance.new(self.new))
        else:
            reference = invariance.reference(ask, case)
        reading = invariance.read(ask, case)
        return _Judged(case, gap(reference, reading), reading.failed)

    def row(self, name: str, rows: dict[str, Row]) -> Row:
        """Check one invariance; `rows` are those before it."""
        invariance = INVARIANCES[name]
        try:
            judged = [self._gap(invariance, case, self.plain) for case in invariance.cases(self.plan)]
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
        failing = [one for one in judged if one.gap > self.tolerance]
        if name == "repeat":
            return self._repeat_row(invariance, judged)
        if not failing:
            return self._row(name, "holds", judged)
        return self._failed_row(name, judged, failing, rows)

    def _repeat_row(self, invariance: Invariance, judged: list[_Judged]) -> Row:
        """Equal calls that differ are no fault by themselves; they are the floor of all others."""
        loud = self.floor > max(EPS_MARGIN * self.subject.eps, LOUD)
        note = f"equal calls differ by up to {self.floor:.1e}, and what is smaller cannot be judged"
        return self._row("repeat", "unstable" if loud else "holds", judged, note=note if loud else "")

    def _failed_row(
        self, name: str, judged: list[_Judged], failing: list[_Judged], rows: dict[str, Row]
    ) -> Row:
        """What stands behind failures: ties, a simpler invariance, chance, or a fault of this one."""
        invariance = INVARIANCES[name]
        broken = {key for key, row in rows.items() if row.state in ("fault", "inherits")}
        ask = self.plain
        if self._chooses(invariance, failing):
            ask = self.settled
            with self._mode(ask):
                judged = [self._gap(invariance, one.case, ask) for one in judged]
            settled = [one for one in judged if one.gap > self.tolerance]
            if not settled:
                return self._tied(name, judged, failing)
            failing = settled
        with self._mode(ask):
            looked = [self._stands(invariance, one.case, ask) for one in self._spread(failing, JUDGED)]
            own = [case for case, why in looked if why == "stands"]
            inherited = [case for case, why in looked if why == "inherits"]
            if not own and inherited:
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
            if not self._confirmed(invariance, own, ask):
                return self._row(name, "unstable", judged, note=GONE)
            like = max(own, key=lambda case: len(case.prompt))
            more = [self._gap(invariance, case, ask) for case in invariance.refine(self.plan, like)]
            return self._fault_row(name, judged + more, own, ask, rows)

    def _fault_row(
        self, name: str, judged: list[_Judged], own: list[Case], ask: _Asker, rows: dict[str, Row]
    ) -> Row:
        facts = [(one.case.coordinates(), one.gap > self.tolerance) for one in judged]
        pattern = fold(facts, self.plan.strides)
        if not self._could_only_be_the_engine(pattern, rows):
            return self._row(name, "ties", judged, note=BLIND)
        shortest = min(own, key=lambda case: len(case.prompt))
        least = self._shrunk(INVARIANCES[name], shortest, ask, pattern.stride if pattern else None)
        shown = self._gap(INVARIANCES[name], least, ask)
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
        if self.sees_scores or self.subject.selects is False:
            return True
        quiet = [rows[name].state for name in CLEAN if name in rows]
        if "holds" in quiet and set(quiet) <= {"holds", "hidden", "absent"}:
            return True
        return pattern is not None and math.comb(pattern.failed + pattern.passed, pattern.failed) >= UNLIKELY

    def _stands(self, invariance: Invariance, case: Case, ask: _Asker) -> tuple[Case, str]:
        """Whether a failure stands: again, beyond what flipped choices explain, and not through a simpler one."""
        first = self._gap(invariance, case, _Asker(self.subject, self.new, ask.fixed))
        if first.gap <= self.tolerance:
            return case, "unstable"
        if self._inherits(invariance, case, ask):
            return case, "inherits"
        try:
            noise = max(self._noise(case.prompt, ask, NOISE_DRAWS))
        except NotOfferedError:
            noise = 0.0
        return case, "ties" if first.gap <= FLIP_MARGIN * noise else "stands"

    def _inherits(self, invariance: Invariance, case: Case, ask: _Asker) -> bool:
        """Whether a simpler way of reading fails alike, so that this one adds no fault.

        Every way begins with a prefill: of the prompt, as the reference is, or of what stands before the cut.
        """
        prefill = INVARIANCES["prefill"]
        if invariance in (prefill, INVARIANCES["repeat"]):
            return False
        try:
            for end in {len(case.prompt), case.cut or len(case.prompt)}:
                if self._gap(prefill, Case(case.prompt[:end]), ask).gap > self.tolerance:
                    return True
        except NotOfferedError:
            pass  # the prompt in one piece is then taken for right
        if invariance.base_read is None:
            return False
        try:
            base = invariance.base_read(ask, case)
            reading = invariance.read(ask, case)
        except NotOfferedError:
            return False
        return gap(base, reading) <= self.tolerance

    def _confirmed(self, invariance: Invariance, own: list[Case], ask: _Asker) -> bool:
        """Whether most fresh prompts of the same shape fail too."""
        failed = 0
        for index in range(CONFIRMED):
            fresh = own[index % len(own)].redrawn(self.plan.ids, self.plan.rng)
            failed += self._stands(invariance, fresh, ask)[1] == "stands"
        return 2 * failed > CONFIRMED

    def _shrunk(self, invariance: Invariance, case: Case, ask: _Asker, stride: int | None) -> Case:
        """The case with as few tokens as still fail: pieces are taken out, larger ones first.

        Pieces of whole strides come first, as they leave every residue as it is.
        """
        first, tries, whole = case, SHRINK_TRIES, stride or 1
        for unit in sorted({whole, 1}, reverse=True):
            size = len(case.prompt) // 2 // unit * unit or unit
            while size:
                smaller = self._smaller(invariance, case, ask, size)
                tries -= 1
                if tries <= 0:
                    break
                if smaller is None:
                    size = size // 2 // unit * unit
                else:
                    case = smaller
        return case if self._stands(invariance, case, ask)[1] == "stands" else first

    def _smaller(self, invariance: Invariance, case: Case, ask: _Asker, size: int) -> Case | None:
        """The case without one piece of this size, if it still fails."""
        for start in sorted({0, (case.cut or 0), max(0, len(case.prompt) - size)}):
            smaller = self._without(case, start, size)
            if smaller is None or self._gap(invariance, smaller, ask).gap <= self.tolerance:
                continue
            if not self._inherits(invariance, smaller, ask):
                return smaller
        return None

    def _without(self, case: Case, start: int, size: int) -> Case | None:
        if start + size > len(case.prompt):
            return None
        smaller = case.without(start, size)
        if smaller is None or case.pads is None:
            return smaller
        kept = case.other[: len(case.other) - size]  # as many left pads as before
        return Case(smaller.prompt, other=kept, pads=case.pads)

    def _chooses(self, invariance: Invariance, failing: list[_Judged]) -> bool:
        """Whether the model had to choose among equal scores in any of some failures."""
        before = self.subject.equal_scores
        if not self.sees_scores:
            return False
        with self.subject.settled():
            for one in self._spread(failing, JUDGED):
                self._gap(invariance, one.case, self.settled)
        return self.subject.equal_scores > before

    def _mode(self, ask: _Asker) -> AbstractContextManager[None]:
        return self.subject.settled() if ask is self.settled else nullcontext()

    def _tied(self, name: str, judged: list[_Judged], failing: list[_Judged]) -> Row:
        note = (
            f"{len(failing)} of {len(judged)} cases differ, by up to {max(one.gap for one in failing):.1e}, "
            "through choices among equal scores; with these settled in one order nothing differs"
        )
        return self._row(name, "ties", judged, failed=len(failing), note=note)

    def _spread(self, failing: list[_Judged], most: int) -> list[_Judged]:
        cases = spread([one.case for one in failing], most)
        return [one for one in failing if one.case in cases][:most]

    def _row(
        self, name: str, state: State, judged: Sequence[_Judged], failed: int | None = None, **more: object
    ) -> Row:
        bad = [one for one in judged if one.gap > self.tolerance] if name != "repeat" else []
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
    subject: Subject,
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
    suite = _Suite(subject, plan, new)
    names = _named(features)
    report("floor", 0, len(names))
    suite.measure_floor()
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
        floor=suite.floor,
        rounding=suite.rounding,
        tolerance=suite.tolerance,
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
