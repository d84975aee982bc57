"""What was found of a run's conditions, in plain sentences and in a line each; controls first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..records import Finding
from ..statistics.intervals import SIGNIFICANT
from ..statistics.missing import phases_missing
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
MOST_PHASES = 8
NOT_FLAT = {"sensitive": "not flat", "position": "dependent on position", "undecided": "undecided"}
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
        return f"{subject} is {what}: {_what(findings)}{_depth(findings)}{warning}."
    if judgement.state == "position":
        return f"{subject} depends on position, but not on phase: {_steps(findings)}, and {_no_period(findings)}."
    if judgement.state == "flat":
        right = ", as it should be" if judgement.control else ""
        return f"{subject} is flat{right}: {_limit(findings)}{_depth(findings)}{_finer(findings)}{_apart(findings)}."
    doubt = _missing(findings) if judgement.missing else f"{_doubt(judgement, findings)}{_finer(findings)}"
    return f"{subject} is undecided: {doubt}."


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
            f"most of all {plain(most)}: {_what(conditions[most])}"
        )
    quiet: tuple[State, ...] = ("position", "flat", "undecided")
    for state in quiet:
        if names[state]:
            verb = "is" if len(names[state]) == 1 else "are"
            parts.append(f"{listed([plain(name) for name in names[state]])} {verb} {STATES[state]}")
    needed = max((judgement.draws_needed or 0 for judgement in tested), default=0)
    parts += [_few_draws(needed)] if needed else []
    return f"{'; '.join([*parts, rest])}."


def _no_period(findings: Sequence[Finding]) -> str:
    period = find(findings, "period")
    if period is None or corrected(period) is None:
        return "whether it repeats could not be tested"
    return f"no period was found beside ({p_of(period)})"


def _what(findings: Sequence[Finding]) -> str:
    """How a phase-sensitive condition depends on phase."""
    if judge(findings).together is None:
        return f"{_period(findings)}, with {_size(findings)}"
    acting = find(findings, "interaction")
    assert acting is not None
    sign = "+" if acting.detail["together"] == "sum" else "−"
    size = "" if acting.value is None else f", SD {points(acting.value)} points"
    return (
        f"recall depends on (source {sign} query) mod {acting.stride} and on neither position alone "
        f"({p_of(acting)}{size})"
    )


ALONG = {
    "source": "after token {after:,} of the prompt, where the fact stands",
    "query": "in prompts whose question ends after token {after:,}",
    "distance": "beyond a distance of {after:,} token{s} between fact and question",
    "offset": "after {after:,} further token{s} of padding",
}


def _steps(findings: Sequence[Finding]) -> str:
    """The steps in position, the two largest of them in words."""
    found = find(findings, "steps")
    assert found is not None
    largest = sorted(found.detail["steps"], key=lambda step: -abs(step["size"]))[:2]
    words = [
        f"{'falls' if step['size'] < 0 else 'rises'} by {points(abs(step['size']))} points "
        f"{ALONG[step['along']].format(after=step['after'], s='s' * (step['after'] != 1))}"
        for step in largest
    ]
    return f"recall {listed(words)} ({p_of(found)})"


def _depth(findings: Sequence[Finding]) -> str:
    """A trend and steps beside the verdict, where they are significant."""
    depth, steps = find(findings, "depth"), find(findings, "steps")
    words = ""
    if depth is not None and depth.value is not None and _significant(depth):
        change = f"{'falls' if depth.value < 0 else 'rises'} by {points(abs(depth.value))} points"
        words = f"; recall also {change} smoothly over the positions of a question ({p_of(depth)})"
    if steps is not None and steps.value is not None and _significant(steps):
        words += f"; beside it {_steps(findings)}"
    return words


def _significant(test: Finding) -> bool:
    p = corrected(test)
    return p is not None and p < SIGNIFICANT


def _named_phases(phases: Sequence[int], stride: int | None) -> str:
    """The first of some phases, in words."""
    shown = [str(phase) for phase in phases[:MOST_PHASES]]
    more = [f"{len(phases) - MOST_PHASES} more"] if len(phases) > MOST_PHASES else []
    return f"phase{'s' * (len(phases) > 1)} {listed([*shown, *more])} of {stride}"


def _missing(findings: Sequence[Finding]) -> str:
    """Which answers are missing, and what they could change."""
    missing = find(findings, "missing")
    assert missing is not None
    phases = phases_missing(missing)
    if not missing.detail["missing"]:
        verb = "were" if len(phases) > 1 else "was"
        return f"{_named_phases(phases, missing.stride)} {verb} never asked"
    where = f" at {_named_phases(phases, missing.stride)}" if phases else ""
    p = "" if missing.p_value is None else f" ({p_of(missing)})"
    words = (
        f"answers are missing{where}{p}: {percent(missing.value or 0.0)} of the prompts, and "
        f"{percent(missing.detail['broken_blocks'])} of the questions miss at least one"
    )
    bounds = missing.detail.get("bounds")
    if bounds is None:
        return words
    return (
        f"{words}; if they were all wrong, mean recall would be {percent(bounds['wrong'])}, if all right "
        f"{percent(bounds['right'])}, and the phase SD at least {points(bounds['least_phase_sd'])} points in any case"
    )


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
    few = f"; {_few_draws(judgement.draws_needed)}" if judgement.draws_needed else ""
    return f"{_period(findings)}{at_stride}, and the phase SD of {interval_words(spread)} {excluded} 0{unknown}{few}"


def _few_draws(needed: int) -> str:
    return (
        "after the correction over conditions no p can fall below 0.05 with so few permutations; "
        f"give --draws {needed} or more"
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


def _apart(findings: Sequence[Finding]) -> str:
    """What a condition that is flat did not see, as its layouts could not."""
    acting = find(findings, "interaction")
    if acting is None or acting.p_value is not None:
        return ""
    return (
        "; whether the residues of fact and question act together was not seen, as these layouts cannot tell "
        "(contexts whose questions end at different residues can)"
    )


def _those(controls: Sequence[Judgement]) -> str:
    names = listed([plain(control.condition) for control in controls])
    return f"the control {names} is" if len(controls) == 1 else f"the controls {names} are"


def _controls(controls: Sequence[Judgement], conditions: dict[str, list[Finding]]) -> str:
    if not controls:
        return "there was no control, so an effect of position or engine is not ruled out"
    doubtful = [
        f"{_those([c for c in controls if c.state == state])} {words}"
        for state, words in NOT_FLAT.items()
        if any(c.state == state for c in controls)
    ]
    if doubtful:
        return f"but {listed(doubtful)}, so position, protocol or engine may explain the rest"
    those = _those(controls)
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
