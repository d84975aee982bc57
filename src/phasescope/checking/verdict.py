"""What a check found, row by row and over all: engine fault, model property, neither, or not decidable."""

from __future__ import annotations

from typing import Any, Literal

from ..records import SCHEMA, Record
from .fold import Pattern

State = Literal["holds", "fault", "inherits", "ties", "unstable", "absent", "hidden"]
Decision = Literal["engine fault", "model property", "neither", "not decidable with this access"]
WORDS: dict[State, str] = {
    "holds": "holds",
    "fault": "engine fault",
    "inherits": "fails with another",
    "ties": "undecided: ties",
    "unstable": "undecided: not reproducible",
    "absent": "not offered",
    "hidden": "not decidable",
}


class Reproduction(Record):
    """The smallest prompt that still fails.

    Attributes:
        prompt_ids, cut, other_ids, pads: as in `PromptCase`.
        gap: the largest difference of log-probabilities that it shows; null where the engine raised.
        raised: what the engine raised.
    """

    prompt_ids: tuple[int, ...]
    cut: int | None = None
    other_ids: tuple[int, ...] = ()
    pads: int | None = None
    gap: float | None = None
    raised: str = ""


class Outcome(Record):
    """What one invariance showed.

    Attributes:
        feature: its name in the table of invariances.
        says: what was compared with the prompt read in one piece.
        state: whether it holds.
        cases, failed: how many were compared, and how many of them differed beyond the tolerance.
        largest_gap: the largest difference of log-probabilities; null where none was compared or the
            engine raised each time.
        raised: what the engine raised in any of them.
        lengths: the prompt lengths at which it failed.
        pattern: by what the failures fold.
        smallest: the smallest prompt that shows it.
        note: what is to be known beside that: what it inherits from, or what would decide it.
    """

    feature: str
    says: str
    state: State
    cases: int = 0
    failed: int = 0
    largest_gap: float | None = None
    raised: str = ""
    lengths: tuple[int, ...] = ()
    pattern: Pattern | None = None
    smallest: Reproduction | None = None
    note: str = ""


class Effect(Record):
    """Whether what the model recalls depends on a residue, as a run of `measure` says.

    Attributes:
        run, condition: where it was measured.
        state: whether there is an effect.
        period: in tokens, where one was found.
        coordinate: which position was moved: the source's or the query's.
        sentence: the same in words.
    """

    run: str
    condition: str
    state: Literal["sensitive", "flat", "undecided"]
    period: int | None
    coordinate: str
    sentence: str


class Verdict(Record):
    """What a check found.

    Attributes:
        v: version of this schema.
        facts: what was checked.
        strides: of the grids around whose boundaries it was asked.
        seed: of every draw.
        floor: the largest difference between two equal calls.
        rounding: what a rounding error in every layer changes, where that can be tried.
        tolerance: differences up to here are none.
        equal_scores: choices among equal scores that were seen.
        decision: the verdict over all rows.
        sentence: the same in words.
        rows: one per invariance.
        effect: what was measured beside it.
    """

    v: Literal[1] = SCHEMA
    facts: dict[str, Any]
    strides: tuple[int, ...]
    seed: int
    floor: float
    rounding: float | None
    tolerance: float
    equal_scores: int
    decision: Decision
    sentence: str
    rows: tuple[Outcome, ...]
    effect: Effect | None = None

    @property
    def faults(self) -> tuple[Outcome, ...]:
        """The rows at fault."""
        return tuple(row for row in self.rows if row.state == "fault")


def outcome_words(row: Outcome) -> str:
    """What a row found, in a line."""
    if row.state in ("absent", "hidden", "ties", "unstable"):
        return row.note
    if row.state == "inherits":
        return f"{row.failed} of {row.cases} cases differ; {row.note}"
    gap = "" if row.largest_gap is None else f"{row.largest_gap:.1e}"
    if row.state == "holds":
        return f"{row.cases} cases, none differs by more than {gap}"
    where = row.pattern.words() if row.pattern else _where(row)
    sizes = [f"by up to {gap}"] if gap else []
    sizes += [f"raising {row.raised}"] if row.raised else []
    size = " or ".join(sizes)
    least = f"; smallest prompt {_least_words(row.smallest)}" if row.smallest else ""
    return f"fails {where}, {size}{least}"


def _where(row: Outcome) -> str:
    if row.failed == row.cases:
        return f"in all {row.cases} cases"
    return f"in {row.failed} of {row.cases} cases, at lengths {_some(row.lengths)}"


def _some(values: tuple[int, ...], most: int = 8) -> str:
    shown = ", ".join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"


def _least_words(least: Reproduction) -> str:
    """The smallest prompt: its ids where they fit a line."""
    tokens = len(least.prompt_ids)
    ids = f" ({' '.join(map(str, least.prompt_ids))})" if tokens <= 12 else ""
    cut = "" if least.cut is None else f", cut after {least.cut}"
    pads = "" if least.pads is None else f", with {least.pads} left pads"
    other = (
        f", {len(least.other_ids)} other tokens there" if least.other_ids and least.cut is not None else ""
    )
    return f"{tokens} tokens{ids}{cut}{other}{pads}"


def decide(rows: tuple[Outcome, ...], effect: Effect | None) -> tuple[Decision, str]:
    """The verdict over all rows, and the sentence that says it.

    A fault of the engine is a fault whatever was measured. Without one, a measured effect is the model's if
    every invariance that the engine offers holds; where one could not be decided, nothing is said.
    """
    faults = [row for row in rows if row.state == "fault"]
    # A failure that is shared with a way which was not checked, or passed, has found no culprit.
    open_ = [row for row in rows if row.state in ("hidden", "ties", "unstable", "inherits")]
    if faults:
        return "engine fault", _fault_words(faults, effect)
    held = sum(row.state == "holds" for row in rows)
    kept = f"all {held} invariances that were checked hold"
    if effect is not None and effect.state == "flat" and not open_:
        return "neither", f"neither: {kept}, and {effect.sentence}."
    if open_:
        what = "; ".join(f"{row.feature}: {row.note}" for row in open_)
        found = "" if effect is None else f"; {effect.sentence}"
        return (
            "not decidable with this access",
            f"not decidable with this access: {held} invariances hold{found}; open are {what}.",
        )
    if effect is None:
        return "neither", (
            f"neither so far: {kept}; whether the model itself depends on a residue is for "
            "`phasescope measure`, and --run with its folder."
        )
    if effect.state == "undecided":
        return "not decidable with this access", (
            f"not decidable with this access: {kept}, but {effect.sentence}; measure more contexts."
        )
    return "model property", f"model property: {kept}, and yet {effect.sentence}."


def _fault_words(faults: list[Outcome], effect: Effect | None) -> str:
    first = faults[0]
    more = [row.says for row in faults[1:]]
    also = f" Also at fault: {', '.join(more)}." if more else ""
    measured = "" if effect is None else f" Measured with this engine, {effect.sentence}; repair it first."
    return f"engine fault: {first.says} {outcome_words(first)}.{also}{measured}"
