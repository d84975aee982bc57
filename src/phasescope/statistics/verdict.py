"""What the findings say, in plain sentences: phase-sensitive, flat, or undecided; controls first."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..records import Finding

State = Literal["sensitive", "flat", "undecided"]
SIGNIFICANT = 0.05
ROOM = 0.02
"""Mean recall nearer than this to none or all cannot tell a model that is even from a task that is too hard or easy."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is said of one condition.

    Attributes:
        condition: its name.
        control: whether it has no grid of its own, so that it should be flat.
        state: phase-sensitive, flat or undecided.
        sentence: the same with numbers.
    """

    condition: str
    control: bool
    state: State
    sentence: str


def plain(name: str, limit: int = 60) -> str:
    """A name as it may stand in a sentence: without control and direction characters, and not too long."""
    kept = "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in name)
    return kept if len(kept) <= limit else kept[: limit - 1].rstrip() + "…"


def number(value: float, digits: int = 1) -> str:
    """A number with that many decimals, a true minus, and no minus before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def points(share: float) -> str:
    """A difference of shares in percentage points."""
    return number(100 * share)


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def p_words(p: float) -> str:
    """A probability as papers write it."""
    words = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def listed(names: Sequence[str]) -> str:
    """Names as a sentence lists them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def find(findings: Iterable[Finding], name: str, outcome: str = "accuracy") -> Finding | None:
    """The first finding of that name and outcome."""
    return next((f for f in findings if f.name == name and f.outcome == outcome), None)


def corrected(finding: Finding) -> float | None:
    """Its p-value, corrected over the conditions where the report did so."""
    corrected_p = finding.detail.get("p_holm", finding.p_value)
    return None if corrected_p is None else float(corrected_p)


def is_control(findings: Iterable[Finding]) -> bool:
    """Whether a condition's findings expect no period because its model folds nothing.

    A foreign model's grid may also be not known; the report then says so in the period's details.
    """
    period = find(findings, "period")
    return period is not None and bool(period.detail.get("control", period.expected is None))


def by_condition(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings of each condition, controls first, otherwise in the order given."""
    conditions: dict[str, list[Finding]] = {}
    for finding in findings:
        conditions.setdefault(finding.condition, []).append(finding)
    return dict(sorted(conditions.items(), key=lambda item: not is_control(item[1])))


def found_period(findings: Sequence[Finding], outcome: str = "accuracy") -> int | None:
    """The period that stands after correction over conditions, or none."""
    period = find(findings, "period", outcome)
    if period is None or period.value is None:
        return None
    p = corrected(period)
    return int(period.value) if p is not None and p < SIGNIFICANT else None


def _excludes_zero(finding: Finding | None) -> bool:
    return finding is not None and finding.low is not None and finding.low > 0


def state_of(findings: Sequence[Finding], outcome: str = "accuracy") -> State:
    """Phase-sensitive, flat or undecided, by three findings of one outcome.

    Phase-sensitive when a period stands and the interval of the phase SD excludes 0; flat when neither
    does, the test at the condition's own stride is silent too, and it is known how small an effect would have been
    seen; else undecided: the findings disagree, or the data are too few.
    """
    spread, test = find(findings, "phase_sd", outcome), find(findings, "phase_test", outcome)
    if spread is None or spread.low is None:
        return "undecided"
    period, wide = found_period(findings, outcome), _excludes_zero(spread)
    if period is not None and wide:
        return "sensitive"
    p = corrected(test) if test is not None else None
    silent = period is None and not wide and p is not None and p >= SIGNIFICANT
    return "flat" if silent and not _too_few(findings, outcome) else "undecided"


def _too_few(findings: Sequence[Finding], outcome: str = "accuracy") -> bool:
    """Whether the data do not even say how small an effect they would show."""
    least = find(findings, "smallest_detectable_effect", outcome)
    return least is not None and least.value is None


def interval_words(finding: Finding, unit: str = "points") -> str:
    """An estimate with its 95 % interval: accuracies in points, log-probabilities in their own unit."""
    factor, digits = (1, 2) if finding.outcome == "logprob" else (100, 1)

    def show(value: float) -> str:
        return number(factor * value, digits)

    value = "–" if finding.value is None else show(finding.value)
    ends = (
        "" if finding.low is None or finding.high is None else f"[{show(finding.low)}, {show(finding.high)}]"
    )
    return "\N{NO-BREAK SPACE}".join(part for part in (value, unit, ends) if part)


def _size_words(findings: Sequence[Finding]) -> str:
    spread, gap = find(findings, "phase_sd"), find(findings, "split_half_gap")
    words = [] if spread is None else [f"a phase SD of {interval_words(spread)}"]
    if gap is not None and gap.value is not None:
        words.append(f"{points(gap.value)} points between its worst and best phase, picked on other contexts")
    return listed(words)


def _found_words(effect: float) -> str:
    if points(effect) == points(0):
        return "hardly an answer differed, so that an effect would show only in a harder task"
    return f"a phase SD of {points(effect)} points would have been found four times in five"


def _limit_words(findings: Sequence[Finding]) -> str:
    """The smallest effect that a flat condition would have shown."""
    least = find(findings, "smallest_detectable_effect")
    if least is None or least.value is None:
        return "how small an effect could have been seen is not known"
    return _found_words(least.value) + _room_words(findings)


def _room_words(findings: Sequence[Finding]) -> str:
    """Where nearly nothing or nearly everything is recalled no phase can differ by much."""
    mean = find(findings, "mean_accuracy")
    if mean is None or mean.value is None or ROOM < mean.value < 1 - ROOM:
        return ""
    return f"; a mean of {points(mean.value)} % leaves a phase little room to differ"


def _period_words(findings: Sequence[Finding]) -> str:
    period, found = find(findings, "period"), found_period(findings)
    if period is None or found is None:
        return "no period was found"
    if period.expected is None:
        own = ", though it folds nothing" if is_control(findings) else ", and its own stride is not known"
    else:
        own = (
            ", its own stride"
            if period.expected == found
            else f", though its own stride is {period.expected}"
        )
    p = corrected(period)
    return f"recall repeats every {found} tokens{own}" + ("" if p is None else f" ({p_words(p)})")


def _doubt_words(findings: Sequence[Finding]) -> str:
    spread, test = find(findings, "phase_sd"), find(findings, "phase_test")
    if spread is None or spread.low is None:
        return "there are too few contexts for an interval of the phase SD"
    p = corrected(test) if test is not None else None
    at_stride = "" if p is None or test is None else f", the test at stride {test.stride} gives {p_words(p)}"
    excluded = "excludes" if _excludes_zero(spread) else "includes"
    unknown = (
        ", with too few data to say how small an effect would have been seen" if _too_few(findings) else ""
    )
    return f"{_period_words(findings)}{at_stride}, and the phase SD of {interval_words(spread)} {excluded} 0{unknown}"


def _finer_words(findings: Sequence[Finding]) -> str:
    """What the log-probability shows where accuracy does not."""
    spread = find(findings, "phase_sd", "logprob")
    if spread is None or state_of(findings, "logprob") != "sensitive":
        return ""
    period = found_period(findings, "logprob")
    return (
        f"; yet the answer's log-probability, a finer measure, repeats every {period} tokens "
        f"(phase SD {interval_words(spread, 'nats')})"
    )


def judge(findings: Sequence[Finding]) -> Judgement:
    """What one condition's findings say.

    Args:
        findings: of one condition, at least one.
    """
    condition, control, state = findings[0].condition, is_control(findings), state_of(findings)
    subject = f"Control {plain(condition)}" if control else plain(condition)
    if state == "sensitive":
        warning = (
            "; position, protocol or engine may then explain the other conditions too" if control else ""
        )
        what = "NOT flat" if control else "phase-sensitive"
        said = f"is {what}: {_period_words(findings)}, with {_size_words(findings)}{warning}"
    elif state == "flat":
        right = ", as it should be" if control else ""
        said = f"is flat{right}: {_limit_words(findings)}{_finer_words(findings)}"
    else:
        said = f"is undecided: {_doubt_words(findings)}{_finer_words(findings)}"
    return Judgement(condition, control, state, f"{subject} {said}.")


def _strongest(conditions: dict[str, list[Finding]], names: Sequence[str]) -> str:
    def spread(name: str) -> float:
        finding = find(conditions[name], "phase_sd")
        return 0.0 if finding is None or finding.value is None else finding.value

    return max(names, key=spread)


def _the_controls(controls: Sequence[Judgement]) -> str:
    names = listed([plain(control.condition) for control in controls])
    return f"the control {names} is" if len(controls) == 1 else f"the controls {names} are"


def _control_words(controls: Sequence[Judgement], conditions: dict[str, list[Finding]]) -> str:
    if not controls:
        return "there was no control, so an effect of position or engine is not ruled out"
    loud = [c for c in controls if c.state != "flat"]
    if loud:
        state = "not flat" if any(c.state == "sensitive" for c in loud) else "undecided"
        return f"but {_the_controls(loud)} {state}, so position, protocol or engine may explain the rest"
    limits = [
        f.value
        for c in controls
        if (f := find(conditions[c.condition], "smallest_detectable_effect")) and f.value
    ]
    seen = f" ({_found_words(max(limits))})" if limits else ""
    return f"{_the_controls(controls)} flat{seen}"


def verdict(findings: Iterable[Finding]) -> str:
    """One sentence over all conditions: who is phase-sensitive, how much, and whether the controls are flat."""
    conditions = by_condition(findings)
    if not conditions:
        return "Nothing was measured."
    judged = [judge(found) for found in conditions.values()]
    controls, tested = [j for j in judged if j.control], [j for j in judged if not j.control]
    if not tested:
        return (
            controls[0].sentence
            if len(controls) == 1
            else f"Only controls were measured; {_control_words(controls, conditions)}."
        )
    if len(tested) == 1:
        return f"{tested[0].sentence.removesuffix('.')}; {_control_words(controls, conditions)}."
    names: dict[State, list[str]] = {"sensitive": [], "flat": [], "undecided": []}
    for judgement in tested:
        names[judgement.state].append(judgement.condition)
    parts = []
    if names["sensitive"]:
        most = _strongest(conditions, names["sensitive"])
        parts.append(
            f"{len(names['sensitive'])} of {len(tested)} tested conditions are phase-sensitive, "
            f"most of all {plain(most)}: {_period_words(conditions[most])}, with {_size_words(conditions[most])}"
        )
    for state in ("flat", "undecided"):
        if names[state]:
            verb = "is" if len(names[state]) == 1 else "are"
            parts.append(f"{listed([plain(name) for name in names[state]])} {verb} {state}")
    sentence = "; ".join([*parts, _control_words(controls, conditions)])
    return f"{sentence[0].upper()}{sentence[1:]}."


@dataclass(frozen=True, slots=True)
class Row:
    """One condition in a line, as text: for the terminal and for the table at the head of the report."""

    condition: str
    verdict: str
    mean: str
    worst: str
    phase_sd: str
    gap: str
    period: str


COLUMNS = ("Condition", "Verdict", "Mean", "Worst residue", "Phase SD", "Gap", "Period (own)")
STATES: dict[State, str] = {"sensitive": "phase-sensitive", "flat": "flat", "undecided": "undecided"}


def _row(findings: Sequence[Finding]) -> Row:
    judgement = judge(findings)

    def shown(name: str, words: str = "–") -> str:
        finding = find(findings, name)
        return words if finding is None or finding.value is None else percent(finding.value)

    spread, gap, period = (find(findings, name) for name in ("phase_sd", "split_half_gap", "period"))
    worst = find(findings, "worst_residue")
    at = "" if worst is None or worst.residue is None else f" at {worst.residue}"
    unknown = "none" if judgement.control else "not known"
    expected = unknown if period is None or period.expected is None else str(period.expected)
    return Row(
        condition=plain(judgement.condition),
        verdict=f"{'control, ' if judgement.control else ''}{STATES[judgement.state]}",
        mean=shown("mean_accuracy"),
        worst=shown("worst_residue") + at,
        phase_sd="–" if spread is None else interval_words(spread, unit=""),
        gap="–" if gap is None else interval_words(gap, unit=""),
        period=f"{found_period(findings) or 'none'} ({expected})",
    )


def rows(findings: Iterable[Finding]) -> list[Row]:
    """One row per condition, controls first."""
    return [_row(found) for found in by_condition(findings).values()]
