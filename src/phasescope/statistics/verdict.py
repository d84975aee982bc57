"""Correction of p-values over conditions, and the one rule that says what a condition is.

The words of a verdict are in `reporting.sentences`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..records import Finding
from .intervals import SIGNIFICANT
from .table import Floats, Outcome

COMPARED = ("phase_test", "paired_test", "period", "depth", "steps", "interaction", "missing")
"""Findings whose p-values are compared across conditions."""
State = Literal["sensitive", "position", "flat", "undecided"]
BROKEN = 0.1
"""Share of blocks that miss an answer above which no verdict is given."""
SLIGHT = 0.05
"""Nats of phase SD below which a sweep's period is called flat: it moves no probability by more than about a point."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on the findings of one condition.

    Attributes:
        condition: its name.
        control: whether it has no grid of its own, so that it should be flat.
        outcome: the outcome that was judged.
        state: phase-sensitive, dependent on position without a period, flat or undecided.
        period: in tokens, where it is significant after correction over conditions; that of the sum or difference where
            source and query act together; None for none.
        p_value: of any period at all, corrected over conditions; None where nothing was testable.
        draws_needed: permutations from which a corrected p could be significant; None where there were enough.
        together: whether the residues of source and query act together, by their sum or difference; None where they do
            not, or nothing can tell.
        missing: whether missing answers forbid a verdict.
    """

    condition: str
    control: bool
    outcome: Outcome
    state: State
    period: int | None
    p_value: float | None
    draws_needed: int | None
    together: str | None = None
    missing: bool = False


def find(findings: Iterable[Finding], name: str, outcome: Outcome = "accuracy") -> Finding | None:
    """The first finding of that name and outcome."""
    return next((f for f in findings if f.name == name and f.outcome == outcome), None)


def holm(p: Floats) -> Floats:
    """Holm's step-down p: max over j ≤ i of min(1, (m − j + 1) p(j)); guards against any false alarm.

    Source: Holm 1979, Scandinavian Journal of Statistics 6, 65–70.
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def correct(findings: Sequence[Finding]) -> list[Finding]:
    """Add p-values corrected over conditions to the tests' details: `p_holm` and `conditions_compared`.

    A family is one kind of test of one outcome over all conditions.
    """
    families: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, finding in enumerate(findings):
        if finding.name in COMPARED and finding.p_value is not None:
            families[finding.name, finding.outcome].append(index)
    corrected = list(findings)
    for family in families.values():
        adjusted = holm(np.array([findings[index].p_value for index in family], dtype=np.float64))
        for index, p in zip(family, adjusted.tolist(), strict=True):
            detail = {**findings[index].detail, "p_holm": p, "conditions_compared": len(family)}
            corrected[index] = findings[index].model_copy(update={"detail": detail})
    return corrected


def corrected(finding: Finding | None) -> float | None:
    """A finding's p-value, corrected over conditions where that was done; None without one."""
    p = None if finding is None else finding.detail.get("p_holm", finding.p_value)
    return None if p is None else float(p)


def is_floor(finding: Finding) -> bool:
    """Whether no permutation came near, so that more draws would give a smaller p."""
    draws = finding.detail.get("draws")
    return draws is not None and finding.p_value is not None and finding.p_value * (draws + 1) < 1.5


def is_control(findings: Iterable[Finding]) -> bool:
    """Whether a condition's findings expect no period because its model has no grid.

    A model's grid may also be unknown; the detail of the period then says that it is not a control.
    """
    period = next((f for f in findings if f.name == "period"), None)
    return period is not None and bool(period.detail.get("control", period.expected is None))


def by_condition(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings of each condition, controls first, otherwise in the order given."""
    conditions: dict[str, list[Finding]] = {}
    for finding in findings:
        conditions.setdefault(finding.condition, []).append(finding)
    return dict(sorted(conditions.items(), key=lambda item: not is_control(item[1])))


def is_sweep(findings: Iterable[Finding]) -> bool:
    """Whether these are the findings of a padding sweep."""
    return any(finding.name == "flips" for finding in findings)


def excludes_zero(low: float | None) -> bool:
    """Whether the 95 % interval with that lower end lies above 0."""
    return low is not None and low > 0


def judge(findings: Sequence[Finding], outcome: Outcome | None = None) -> Judgement:
    """Decide what the findings of one condition say about one outcome.

    - Phase-sensitive: a period is significant (p below 0.05 after correction over conditions), and the interval of the
      phase SD excludes 0. A padding sweep has no such interval, because its lengths are chosen and not drawn; there the
      phase SD must be at least 0.05 nats.
    - Dependent on position: no period is significant, and steps in position are, which explain more than any period
      does: a cliff is not a period.
    - Flat: none of these holds, the test at the condition's own stride is not significant, and the smallest detectable
      effect is known. Where the residues of source and query act together, it is phase-sensitive all the same.
    - Undecided: the findings disagree, there are too few data, there are too few permutations for any corrected p to be
      significant, or missing answers may have made the result.

    Args:
        findings: of one condition, at least one.
        outcome: the outcome to judge; by default accuracy, or the primary outcome of a sweep.
    """
    chosen = outcome or _primary(findings)
    period = find(findings, "period", chosen)
    p, found, needed = corrected(period), None, None
    if period is not None:
        needed = _draws_needed(period)
        found = int(period.value) if period.value is not None and p is not None and p < SIGNIFICANT else None
    if period is not None and is_sweep(findings):
        state = _sweep_state(period, found)
    else:
        state = _state(findings, chosen, found)
    together = _together(findings) if chosen == "accuracy" and state in ("flat", "position") else None
    if together is not None:
        acting = find(findings, "interaction")
        state, found = "sensitive", None if acting is None else acting.stride
    missing = chosen == "accuracy" and _may_mislead(findings, state)
    if missing or (state == "flat" and needed is not None):
        state = "undecided"
    return Judgement(
        findings[0].condition, is_control(findings), chosen, state, found, p, needed, together, missing
    )


def _together(findings: Sequence[Finding]) -> str | None:
    """How the residues of source and query act together, if that is significant."""
    interaction = find(findings, "interaction")
    p = corrected(interaction)
    if interaction is None or p is None or p >= SIGNIFICANT:
        return None
    return str(interaction.detail["together"])


def _may_mislead(findings: Sequence[Finding], state: State) -> bool:
    """Whether missing answers may have made the result: by phase, in many blocks, or at phases never seen.

    A phase-sensitive condition stays so if its phases differ whatever the missing answers were.
    """
    missing = find(findings, "missing")
    if missing is None:
        return False
    detail, p = missing.detail, corrected(missing)
    doubtful = detail["broken_blocks"] > BROKEN or (p is not None and p < SIGNIFICANT)
    if state == "sensitive":
        spread, bounds = find(findings, "phase_sd"), detail.get("bounds")
        if spread is None or spread.value is None or spread.high is None or bounds is None:
            return doubtful
        return doubtful and bounds["least_phase_sd"] <= spread.high - spread.value
    return doubtful or bool(detail["unseen"])


def _primary(findings: Iterable[Finding]) -> Outcome:
    """The outcome that decides: the best one that a sweep's trials all have, else accuracy."""
    return next((f.outcome for f in findings if f.detail.get("primary")), "accuracy")


def _draws_needed(test: Finding) -> int | None:
    """Holm's smallest p is m / (draws + 1) over m conditions; it must be able to fall below the level."""
    draws, compared = test.detail.get("draws"), int(test.detail.get("conditions_compared", 1))
    if draws is None or compared / (draws + 1) < SIGNIFICANT:
        return None
    return math.ceil(compared / SIGNIFICANT)


def _state(findings: Sequence[Finding], outcome: Outcome, period: int | None) -> State:
    spread, test = (find(findings, name, outcome) for name in ("phase_sd", "phase_test"))
    if spread is None or spread.low is None:
        return "undecided"
    wide, p = excludes_zero(spread.low), corrected(test)
    if period is not None and wide:
        return "sensitive"
    if period is None and has_steps(findings, outcome):
        return "position"
    silent = period is None and not wide and p is not None and p >= SIGNIFICANT
    return "flat" if silent and not has_too_few(findings, outcome) else "undecided"


def has_steps(findings: Sequence[Finding], outcome: Outcome = "accuracy") -> bool:
    """Whether the outcome has significant steps in position that explain more than a period does."""
    steps = find(findings, "steps", outcome)
    p = corrected(steps)
    return steps is not None and bool(steps.detail["more_than_period"]) and p is not None and p < SIGNIFICANT


def has_too_few(findings: Sequence[Finding], outcome: Outcome = "accuracy") -> bool:
    """Whether the data do not even say how small an effect they would show."""
    least = find(findings, "smallest_detectable_effect", outcome)
    return least is not None and least.value is None


def _sweep_state(period: Finding, found: int | None) -> State:
    if found is not None:
        return "flat" if is_slight(period) else "sensitive"
    return "undecided" if period.detail["smallest_detectable_effect"] is None else "flat"


def is_slight(period: Finding) -> bool:
    """Whether a sweep's period is too weak to matter: deterministic models show the faintest ones."""
    return period.outcome != "accuracy" and (period.detail["phase_sd"] or 0.0) < SLIGHT
