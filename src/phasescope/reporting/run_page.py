"""From findings to the page: what each section shows, and the HTML around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..records import Finding
from ..statistics.conditions import Condition
from ..statistics.verdict import (
    COLUMNS,
    STATES,
    by_condition,
    corrected,
    find,
    found_period,
    interval_words,
    is_control,
    judge,
    number,
    p_words,
    percent,
    plain,
    points,
    rows,
    state_of,
    verdict,
)
from .figures import Curve, Figure, context_dots, phase_curve, residue_bars, spread_forest
from .method import Method
from .pages import filled
from .sweep_page import apart, sweep_section, sweep_sentence

RATES = ("phase_rate", "residue_rate")


def render(title: str, conditions: Sequence[Condition], findings: Sequence[Finding], method: Method) -> str:
    """The whole page as one HTML text that needs nothing beside it.

    Args:
        title: what was measured, in a few words.
        conditions: the conditions with their observations.
        findings: of all conditions.
        method: how it was measured, and how to do so again.
    """
    rest, sweeps = apart(findings)
    grouped = by_condition(rest)
    measured = {condition.name: condition for condition in conditions}
    sections = [
        _section(f"condition-{number}", measured[name], own, measured, grouped)
        for number, (name, own) in enumerate(grouped.items(), start=1)
    ]
    listed_findings = [finding for own in grouped.values() for finding in own if finding.name not in RATES]
    return filled(
        "report.html.j2",
        title=plain(title),
        verdict=" ".join(
            [verdict(rest)] * bool(rest or not sweeps) + [sweep_sentence(s) for s in sweeps.values()]
        ),
        sweeps=[sweep_section(f"sweep-{n}", own) for n, own in enumerate(sweeps.values(), start=1)],
        controls=[section for section in sections if section["control"]],
        tested=[section for section in sections if not section["control"]],
        overview={"columns": COLUMNS, "rows": [_cells(row) for row in rows(rest)]},
        forest=_forest(grouped),
        findings={
            "columns": _FINDING_COLUMNS,
            "rows": [_finding_row(finding) for finding in listed_findings],
        },
        method=method,
    )


def _cells(row: Any) -> tuple[str, ...]:
    return tuple(getattr(row, name) for name in row.__dataclass_fields__)


def _forest(grouped: dict[str, list[Finding]]) -> Figure | None:
    spreads = [
        (name, judge(own).control, state_of(own), spread)
        for name, own in grouped.items()
        if (spread := find(own, "phase_sd")) is not None and spread.value is not None
    ]
    return spread_forest("forest", spreads) if spreads else None


def _curve(condition: Condition, findings: Iterable[Finding], rate: str, stride: int | None) -> Curve | None:
    """The accuracies by phase or residue at that stride, if every one of them is there."""
    rates = sorted(
        (f for f in findings if f.name == rate and f.outcome == "accuracy" and stride in (None, f.stride)),
        key=lambda f: f.residue or 0,
    )
    whole = (
        rates
        and [f.residue for f in rates] == list(range(len(rates)))
        and all(f.value is not None for f in rates)
    )
    return Curve(condition.name, _kind(condition), rates) if whole else None


def _kind(condition: Condition) -> Literal["condition", "control"]:
    return "control" if condition.control else "condition"


def _section(
    key: str,
    condition: Condition,
    own: list[Finding],
    measured: dict[str, Condition],
    grouped: dict[str, list[Finding]],
) -> dict[str, Any]:
    judgement = judge(own)
    period = found_period(own)
    figures = []
    if curve := _curve(condition, own, "phase_rate", condition.fold):
        control = condition.control_among(measured.values())
        beside = _curve(control, grouped[control.name], "phase_rate", condition.fold) if control else None
        figures.append(phase_curve(f"{key}-phase", curve, beside, condition.coordinate))
    if curve := _curve(condition, own, "residue_rate", None):
        figures.append(residue_bars(f"{key}-residue", curve, period, condition.coordinate))
    shares = context_shares(condition)
    if shares.size:
        figures.append(
            context_dots(f"{key}-contexts", condition.name, _kind(condition), shares, condition.coordinate)
        )
    return {
        "key": key,
        "name": plain(condition.name, 120),
        "control": judgement.control,
        "state": judgement.state,
        "tag": f"{'control, ' if judgement.control else ''}{STATES[judgement.state]}",
        "sentence": judgement.sentence,
        "numbers": _numbers(own),
        "figures": figures,
    }


def context_shares(condition: Condition) -> npt.NDArray[np.float64]:
    """Accuracy of every context at every phase of the condition's fold.

    Returns:
        shape [contexts, phases]; contexts that miss a phase are left out.
    """
    if not condition.observations:
        return np.empty((0, 0))
    _, context = np.unique([o.cluster for o in condition.observations], return_inverse=True)
    phase = np.array([condition.position(o) % condition.fold for o in condition.observations])
    cell = context * condition.fold + phase
    cells = (int(context.max()) + 1) * condition.fold
    counts = np.bincount(cell, minlength=cells).reshape(-1, condition.fold)
    right = np.bincount(cell, [o.score for o in condition.observations], cells).reshape(-1, condition.fold)
    whole = (counts > 0).all(axis=1)
    shares: npt.NDArray[np.float64] = right[whole] / counts[whole]
    return shares


TERMS = (
    ("Mean accuracy", "mean_accuracy", "accuracy"),
    ("Mean accuracy among the candidates", "mean_accuracy", "candidate_accuracy"),
    ("Worst residue", "worst_residue", "accuracy"),
    ("Phase SD, points", "phase_sd", "accuracy"),
    ("Phase SD of the log-probability, nats", "phase_sd", "logprob"),
    ("Smallest detectable phase SD, points", "smallest_detectable_effect", "accuracy"),
    ("Split-half gap, points", "split_half_gap", "accuracy"),
    ("Raw gap, points", "raw_gap", "accuracy"),
    ("Period found", "period", "accuracy"),
    ("Test at the fold", "phase_test", "accuracy"),
    ("Paired test", "paired_test", "accuracy"),
)
"""What a condition's key numbers are called, and the findings and outcomes that they are."""


def _numbers(own: list[Finding]) -> list[tuple[str, str, str]]:
    """Term, number and note for each key number that was found."""
    terms = [(term, find(own, name, outcome)) for term, name, outcome in TERMS]
    found = [(term, finding) for term, finding in terms if finding is not None]
    return [(term, _shown(finding, own), _note(finding, own)) for term, finding in found]


def _shown(finding: Finding, own: list[Finding]) -> str:
    if finding.name == "period":
        return str(found_period(own) or "none")
    if finding.name in ("phase_test", "paired_test"):
        p = corrected(finding)
        return "–" if p is None else p_words(p)
    if finding.name in ("mean_accuracy", "worst_residue") and finding.value is not None:
        ends = finding.low is not None and finding.high is not None
        interval = f" [{100 * (finding.low or 0):.1f}, {100 * (finding.high or 0):.1f}]" if ends else ""
        return percent(finding.value) + interval
    return interval_words(finding, unit="")


def _note(finding: Finding, own: list[Finding]) -> str:
    """What a number needs beside it to be read rightly."""
    if finding.name == "worst_residue" and finding.residue is not None:
        return f"residue {finding.residue} mod {finding.stride}, picked on other contexts"
    if finding.name == "split_half_gap":
        return "best minus worst phase, picked on other contexts"
    if finding.name == "raw_gap" and {"null_mean", "null_95"} <= finding.detail.keys():
        mean, high = points(finding.detail["null_mean"]), points(finding.detail["null_95"])
        return f"by chance alone {mean} on average, and above {high} one time in twenty"
    if finding.name == "period":
        unknown = "a control has none of its own" if is_control(own) else "the model’s own is not known"
        expected = unknown if finding.expected is None else f"the model’s own is {finding.expected}"
        p = corrected(finding)
        return expected if p is None else f"{expected}; any period at all: {p_words(p)}"
    return f"phases mod {finding.stride}" if finding.name == "phase_test" else ""


_FINDING_COLUMNS = (
    "Condition",
    "Finding",
    "Outcome",
    "Mod",
    "Value",
    "Low",
    "High",
    "p",
    "p, corrected",
    "Blocks",
    "Contexts",
)


def _finding_row(finding: Finding) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        if value is None:
            return "none" if finding.name == "period" else "–"
        if finding.name == "period":
            return str(int(value))
        return number(value if finding.outcome == "logprob" else 100 * value, 2)

    holm = finding.detail.get("p_holm")
    return (
        plain(finding.condition),
        finding.name,
        finding.outcome,
        "–" if finding.stride is None else str(finding.stride),
        shown(finding.value),
        "–" if finding.low is None else shown(finding.low),
        "–" if finding.high is None else shown(finding.high),
        "–" if finding.p_value is None else f"{finding.p_value:.4f}",
        "–" if holm is None else f"{holm:.4f}",
        str(finding.n_blocks),
        str(finding.n_clusters),
    )
