"""What a check found, row by row and over all: engine fault, model property, neither, or not decidable."""

from __future__ import annotations

from html import escape
from typing import Any, Literal

from ..records import SCHEMA, Record
from ..statistics.effect import Effect as Effect
from .fold import Pattern

State = Literal["holds", "fault", "inherits", "ties", "spread", "unstable", "lossy", "absent", "hidden"]
Decision = Literal["engine fault", "model property", "neither", "not decidable with this access"]
SHOWN = 8
"""Prompt lengths that a line names."""

WORDS: dict[State, str] = {
    "holds": "holds",
    "fault": "engine fault",
    "inherits": "fails with another",
    "ties": "undecided: ties",
    "spread": "undecided: few rows",
    "unstable": "undecided: not reproducible",
    "lossy": "differs by design",
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

    def words(self) -> str:
        """The tokens, with their ids where they fit a line, and what is done beside them."""
        tokens = len(self.prompt_ids)
        ids = f" ({' '.join(map(str, self.prompt_ids))})" if tokens <= 12 else ""
        cut = "" if self.cut is None else f", cut after {self.cut}"
        pads = "" if self.pads is None else f", with {self.pads} left pads"
        count = len(self.other_ids)
        other = f", {count} other tokens there" if cut else f", before {count} more in the longer one"
        if not self.other_ids or self.pads is not None:
            other = ""
        return f"{tokens} tokens{ids}{cut}{other}{pads}"


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

    def words(self) -> str:
        """What was found, in a line."""
        if self.state in ("absent", "hidden", "ties", "spread", "unstable", "lossy"):
            return self.note
        if self.state == "inherits":
            return f"{self.failed} of {self.cases} cases differ; {self.note}"
        gap = "" if self.largest_gap is None else f"{self.largest_gap:.1e}"
        if self.state == "holds":
            return f"{self.cases} cases, none differs by more than {gap}"
        sizes = [f"by up to {gap}"] if gap else []
        sizes += [f"raising {self.raised}"] if self.raised else []
        least = f"; smallest prompt {self.smallest.words()}" if self.smallest else ""
        return f"fails {self._where()}, {' or '.join(sizes)}{least}{self.note and f'; {self.note}'}"

    def _where(self) -> str:
        if self.pattern:
            return self.pattern.words()
        if self.failed == self.cases:
            return f"in all {self.cases} cases"
        shown = ", ".join(map(str, self.lengths[:SHOWN]))
        more = f" and {len(self.lengths) - SHOWN} more" if len(self.lengths) > SHOWN else ""
        return f"in {self.failed} of {self.cases} cases, at lengths {shown}{more}"


class Verdict(Record):
    """What a check found.

    Attributes:
        v: version of this schema.
        facts: what was checked.
        strides: of the grids around whose boundaries it was asked.
        seed: of every draw.
        floor: the largest difference between two equal calls.
        rounding: what a rounding error in every layer changes, where that can be tried.
        spread: what reading the same in another shape changes, where batches can be asked.
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
    spread: float | None = None
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

    def __repr__(self) -> str:
        states = ", ".join(f"{row.feature}: {WORDS[row.state]}" for row in self.rows)
        return f"<Verdict {self.decision!r} ({states})>"

    def _repr_html_(self) -> str:
        """The sentence and a row per invariance, for a notebook."""
        rows = ((row.feature, WORDS[row.state], row.words()) for row in self.rows)
        cells = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in rows)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        head = "<tr><th>feature</th><th>verdict</th><th>what was found</th></tr>"
        return f"<p>{escape(self.sentence)}</p><table>{head}{body}</table>"


def decide(rows: tuple[Outcome, ...], effect: Effect | None) -> tuple[Decision, str]:
    """The verdict over all rows, and the sentence that says it.

    A fault of the engine is a fault whatever was measured. Without one, a measured effect is the model's if
    every invariance that the engine offers holds; where one could not be decided, nothing is said.
    """
    faults = [row for row in rows if row.state == "fault"]
    # A failure that is shared with a way which was not checked, or passed, has found no culprit.
    open_ = [row for row in rows if row.state in ("hidden", "ties", "spread", "unstable", "inherits")]
    if faults:
        return "engine fault", _fault_words(faults, effect)
    held = sum(row.state == "holds" for row in rows)
    kept = f"all {held} invariances that were checked hold"
    if effect is not None and effect.state == "flat" and not open_:
        return "neither", f"neither: {kept}, and {effect.sentence}."
    if open_:
        notes = {
            note: [row.feature for row in open_ if row.note == note] for note in (row.note for row in open_)
        }
        what = "; ".join(f"{', '.join(features)}: {note}" for note, features in notes.items())
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
    return f"engine fault: {first.says} {first.words()}.{also}{measured}"
