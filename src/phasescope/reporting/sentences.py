"""What was found of a run's conditions, in plain sentences and in a line each; controls first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..records import Finding
from ..statistics.verdict import (
    Judgement,
    State,
    by_condition,
    corrected,
    excludes_zero,
    find,
    has_too_few,
    judge,
)
from .words import STATES, interval_words, listed, p_of, p_words, percent, plain, points

ROOM = 0.02
"""Mean recall nearer than this to none or all cannot tell a model that is even from a task that is too hard or easy."""
COLUMNS = ("Condition", "Verdict", "Mean", "Worst residue", "Phase SD", "Gap", "Period (own)")


def sentence(findings: Sequence[Finding]) -> str:
    """What one condition's findings say."""
    judgement = judge(findings)
    subject = f"Control {plain(judgement.condition)}" if judgement.control else plain(judgement.condition)
    if judgement.state == "sensitive":
        what = "NOT flat" if judgement.control else "phase-sensitive"
        warning = (
            "; position, protocol or engine may then explain the other conditions too" * judgement.control
        )
        return f"{subject} is {what}: {_period(findings)}, with {_size(findings)}{warning}."
    if judgement.state == "flat":
        right = ", as it should be" if judgement.control else ""
        return f"{subject} is flat{right}: {_limit(findings)}{_finer(findings)}."
    return f"{subject} is undecided: {_doubt(judgement, findings)}{_finer(findings)}."


def verdict(findings: Iterable[Finding]) -> str:
    """One sentence over all conditions: who is phase-sensitive, how much, and whether the controls are flat."""
    conditions = by_condition(findings)
    judged = [judge(own) for own in conditions.values()]
    controls, tested = [j for j in judged if j.control], [j for j in judged if not j.control]
    if not judged:
        return "Nothing was measured."
    if len(judged) == 1 and controls:
        return sentence(conditions[controls[0].condition])
    rest = _controls(controls, conditions)
    if not tested:
        return f"Only controls were measured; {rest}."
    if len(tested) == 1:
        return f"{sentence(conditions[tested[0].condition]).removesuffix('.')}; {rest}."
    names = {state: [j.condition for j in tested if j.state == state] for state in STATES}
    parts = []
    if names["sensitive"]:
        most = max(names["sensitive"], key=lambda name: _spread(conditions[name]))
        parts.append(
            f"{len(names['sensitive'])} of {len(tested)} tested conditions are phase-sensitive, "
            f"most of all {plain(most)}: {_period(conditions[most])}, with {_size(conditions[most])}"
        )
    quiet: tuple[State, ...] = ("flat", "undecided")
    for state in quiet:
        if names[state]:
            verb = "is" if len(names[state]) == 1 else "are"
            parts.append(f"{listed([plain(name) for name in names[state]])} {verb} {state}")
    parts += [_few_draws(tested[0])] if tested[0].draws_needed else []
    return f"{'; '.join([*parts, rest])}."


def _spread(findings: Sequence[Finding]) -> float:
    spread = find(findings, "phase_sd")
    return 0.0 if spread is None or spread.value is None else spread.value


def _size(findings: Sequence[Finding]) -> str:
    spread, gap = find(findings, "phase_sd"), find(findings, "split_half_gap")
    words = [] if spread is None else [f"a phase SD of {interval_words(spread)}"]
    if gap is not None and gap.value is not None:
        words.append(f"{points(gap.value)} points between its worst and best phase, picked on other contexts")
    return listed(words)


def _would_show(effect: float) -> str:
    if points(effect) == points(0):
        return "hardly any answer differed, so that an effect would show only in a harder task"
    return f"a phase SD of {points(effect)} points would have been found four times in five"


def _limit(findings: Sequence[Finding]) -> str:
    """The smallest effect that a flat condition would have shown; near none or all, no phase can differ by much."""
    least, mean = find(findings, "smallest_detectable_effect"), find(findings, "mean_accuracy")
    if least is None or least.value is None:
        return "how small an effect could have been seen is not known"
    if mean is None or mean.value is None or ROOM < mean.value < 1 - ROOM:
        return _would_show(least.value)
    return (
        f"{_would_show(least.value)}; a mean of {points(mean.value)} % leaves a phase little room to differ"
    )


def _period(findings: Sequence[Finding]) -> str:
    period, judgement = find(findings, "period"), judge(findings, "accuracy")
    if period is None or judgement.period is None:
        return "no period was found"
    if period.expected is None:
        own = "though it has no grid" if judgement.control else "and its own stride is not known"
    elif period.expected == judgement.period:
        own = "its own stride"
    else:
        own = f"though its own stride is {period.expected}"
    return f"recall repeats every {judgement.period} tokens, {own} ({p_of(period)})"


def _doubt(judgement: Judgement, findings: Sequence[Finding]) -> str:
    spread, test = find(findings, "phase_sd"), find(findings, "phase_test")
    if spread is None or spread.low is None:
        return "there are too few contexts for an interval of the phase SD"
    p = corrected(test)
    at_stride = (
        "" if p is None or test is None else f", the test at stride {test.stride} gives {p_words(p, test)}"
    )
    excluded = "excludes" if excludes_zero(spread.low) else "includes"
    unknown = ", with too few data to say how small an effect would have been seen" * has_too_few(findings)
    few = f"; {_few_draws(judgement)}" if judgement.draws_needed else ""
    return f"{_period(findings)}{at_stride}, and the phase SD of {interval_words(spread)} {excluded} 0{unknown}{few}"


def _few_draws(judgement: Judgement) -> str:
    return (
        "after the correction over conditions no p can fall below 0.05 with so few permutations; "
        f"give --draws {judgement.draws_needed} or more"
    )


def _finer(findings: Sequence[Finding]) -> str:
    """What the log-probability shows where accuracy does not."""
    spread = find(findings, "phase_sd", "logprob")
    finer = judge(findings, "logprob")
    if spread is None or finer.state != "sensitive":
        return ""
    return (
        f"; yet the answer's log-probability, a finer measure, repeats every {finer.period} tokens "
        f"(phase SD {interval_words(spread, 'nats')})"
    )


def _controls(controls: Sequence[Judgement], conditions: dict[str, list[Finding]]) -> str:
    if not controls:
        return "there was no control, so an effect of position or engine is not ruled out"
    names = listed([plain(control.condition) for control in controls])
    those = f"the control {names} is" if len(controls) == 1 else f"the controls {names} are"
    states = {control.state for control in controls}
    if states != {"flat"}:
        state = "not flat" if "sensitive" in states else "undecided"
        return f"but {those} {state}, so position, protocol or engine may explain the rest"
    least = (find(conditions[c.condition], "smallest_detectable_effect") for c in controls)
    limits = [finding.value for finding in least if finding and finding.value]
    return f"{those} flat" + (f" ({_would_show(max(limits))})" if limits else "")


def rows(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    """One row of `COLUMNS` per condition, controls first."""
    return [_row(own) for own in by_condition(findings).values()]


def _row(findings: Sequence[Finding]) -> tuple[str, ...]:
    judgement = judge(findings, "accuracy")
    mean, worst, spread, gap, period = (
        find(findings, name)
        for name in ("mean_accuracy", "worst_residue", "phase_sd", "split_half_gap", "period")
    )

    def share(finding: Finding | None) -> str:
        return "–" if finding is None or finding.value is None else percent(finding.value)

    at = "" if worst is None or worst.residue is None else f" at {worst.residue}"
    unknown = "none" if judgement.control else "not known"
    own = unknown if period is None or period.expected is None else str(period.expected)
    return (
        plain(judgement.condition),
        ("control, " if judgement.control else "") + STATES[judgement.state],
        share(mean),
        share(worst) + at,
        "–" if spread is None else interval_words(spread, unit=""),
        "–" if gap is None else interval_words(gap, unit=""),
        f"{judgement.period or 'none'} ({own})",
    )
