"""From an analysis to the page: what each section shows, and the HTML around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..records import Finding
from ..statistics.analyses import Analysis, ConditionAnalysis
from ..statistics.conditions import Condition
from ..statistics.table import Outcome
from ..statistics.verdict import find, is_sweep, judge
from .figure import Figure
from .figures import Curve, Kind, context_dots, phase_curve, residue_bars, spread_forest
from .method import Method
from .pages import filled
from .sentences import COLUMNS, rows, sentence, verdict
from .sweep_page import apart, sweep_figures, sweep_section, sweep_sentence
from .words import STATES, interval_words, number, p_of, percent, plain, points


def render(analysis: Analysis, method: Method) -> str:
    """The whole page as one HTML text that needs nothing beside it.

    Args:
        analysis: what was found.
        method: how it was measured, and how to do so again.
    """
    rest, sweeps = apart(analysis.findings)
    said = [verdict(rest)] if rest or not sweeps else []
    listed = [f for one in _shown(analysis) for f in one.findings if not f.name.endswith("_rate")]
    sections = [_section(f"condition-{n}", one, analysis) for n, one in enumerate(_shown(analysis), start=1)]
    return filled(
        "report.html.j2",
        title=plain(", ".join(analysis.runs)),
        verdict=" ".join([*said, *(sweep_sentence(own) for own in sweeps.values())]),
        sweeps=[sweep_section(f"sweep-{n}", own) for n, own in enumerate(sweeps.values(), start=1)],
        controls=[section for section in sections if section["control"]],
        tested=[section for section in sections if not section["control"]],
        overview={"columns": COLUMNS, "rows": rows(rest)},
        forest=_forest(analysis),
        findings=[_finding_row(finding) for finding in listed],
        method=method,
    )


def figures_of(analysis: Analysis) -> dict[str, Figure]:
    """Every figure of the page by the condition's name and what it shows."""
    forest = _forest(analysis)
    figures = {} if forest is None else {forest.title: forest}
    for n, one in enumerate(_shown(analysis), start=1):
        figures |= {
            f"{one.name}: {drawn.title}": drawn for drawn in _figures(f"condition-{n}", one, analysis)
        }
    for n, own in enumerate(apart(analysis.findings)[1].values(), start=1):
        figures |= {f"{own[0].condition}: {drawn.title}": drawn for drawn in sweep_figures(f"sweep-{n}", own)}
    return figures


def _shown(analysis: Analysis) -> list[ConditionAnalysis]:
    """Conditions with findings, without the sweeps; controls first."""
    shown = [one for one in analysis.conditions if one.findings and not is_sweep(one.findings)]
    return sorted(shown, key=lambda one: not (one.judgement and one.judgement.control))


def _forest(analysis: Analysis) -> Figure | None:
    spreads = []
    for one in _shown(analysis):
        judgement, spread = judge(one.findings), find(one.findings, "phase_sd")
        if spread is not None and spread.value is not None:
            spreads.append((one.name, judgement.control, judgement.state, spread))
    return spread_forest("forest", spreads) if spreads else None


def _curve(condition: Condition, findings: Sequence[Finding], rate: str, stride: int | None) -> Curve | None:
    """The accuracies by phase or residue at that stride, if every one of them is there."""
    rates = sorted(
        (f for f in findings if f.name == rate and f.outcome == "accuracy" and stride in (None, f.stride)),
        key=lambda f: f.residue or 0,
    )
    whole = rates and [f.residue for f in rates] == list(range(len(rates)))
    if not whole or any(f.value is None for f in rates):
        return None
    return Curve.of_findings(condition.name, _kind(condition), rates)


def _kind(condition: Condition) -> Kind:
    return "control" if condition.control else "condition"


def _figures(key: str, one: ConditionAnalysis, analysis: Analysis) -> list[Figure]:
    """Accuracy by phase beside the control, by residue with the period, and of every context."""
    condition, figures = one.condition, []
    if curve := _curve(condition, one.findings, "phase_rate", condition.fold):
        control = condition.control_among(other.condition for other in analysis.conditions)
        found = analysis[control.name].findings if control else ()
        beside = _curve(control, found, "phase_rate", condition.fold) if control else None
        figures.append(phase_curve(f"{key}-phase", curve, beside, condition.coordinate))
    if curve := _curve(condition, one.findings, "residue_rate", None):
        period = judge(one.findings).period
        figures.append(residue_bars(f"{key}-residue", curve, period, condition.coordinate))
    shares = condition.context_shares()
    if shares.size:
        drawn = context_dots(f"{key}-contexts", one.name, _kind(condition), shares, condition.coordinate)
        figures.append(drawn)
    return figures


def _section(key: str, one: ConditionAnalysis, analysis: Analysis) -> dict[str, Any]:
    judgement = judge(one.findings)
    return {
        "key": key,
        "name": plain(one.name, 120),
        "control": judgement.control,
        "state": judgement.state,
        "tag": ("control, " if judgement.control else "") + STATES[judgement.state],
        "sentence": sentence(one.findings),
        "numbers": _numbers(one.findings),
        "figures": _figures(key, one, analysis),
    }


TERMS: tuple[tuple[str, str, Outcome], ...] = (
    ("Mean accuracy", "mean_accuracy", "accuracy"),
    ("Mean accuracy among the candidates", "mean_accuracy", "candidate_accuracy"),
    ("Worst residue", "worst_residue", "accuracy"),
    ("Phase SD, points", "phase_sd", "accuracy"),
    ("Phase SD of the log-probability, nats", "phase_sd", "logprob"),
    ("Smallest detectable phase SD, points", "smallest_detectable_effect", "accuracy"),
    ("Split-half gap, points", "split_half_gap", "accuracy"),
    ("Raw gap, points", "raw_gap", "accuracy"),
    ("Inside gap, points", "inside_gap", "accuracy"),
    ("Boundary loss, points", "boundary_loss", "accuracy"),
    ("Period found", "period", "accuracy"),
    ("Test at the fold", "phase_test", "accuracy"),
    ("Paired test", "paired_test", "accuracy"),
    ("Change with depth, points", "depth", "accuracy"),
    ("Largest step, points", "steps", "accuracy"),
    ("Source and query together", "interaction", "accuracy"),
    ("Missing answers", "missing", "accuracy"),
)
"""What a condition's key numbers are called, and the findings and outcomes that they are."""


def _numbers(own: Sequence[Finding]) -> list[tuple[str, str, str]]:
    """Term, number and note for each key number that was found."""
    terms = [(term, find(own, name, outcome)) for term, name, outcome in TERMS]
    return [(term, _number(found, own), _note(found, own)) for term, found in terms if found is not None]


def _number(finding: Finding, own: Sequence[Finding]) -> str:
    if finding.name == "period":
        return str(judge(own).period or "none")
    if finding.name in ("phase_test", "paired_test", "interaction"):
        return p_of(finding)
    if finding.name in ("mean_accuracy", "worst_residue", "missing") and finding.value is not None:
        ends = finding.low is not None and finding.high is not None
        interval = f" [{100 * (finding.low or 0):.1f}, {100 * (finding.high or 0):.1f}]" if ends else ""
        return percent(finding.value) + interval
    return interval_words(finding, unit="")


def _note(finding: Finding, own: Sequence[Finding]) -> str:
    """What a number needs beside it to be read rightly."""
    if finding.name == "worst_residue" and finding.residue is not None:
        return f"residue {finding.residue} mod {finding.stride}, picked on other contexts"
    if finding.name == "split_half_gap":
        return "best minus worst phase, picked on other contexts"
    if finding.name == "raw_gap" and {"null_mean", "null_95"} <= finding.detail.keys():
        mean, high = points(finding.detail["null_mean"]), points(finding.detail["null_95"])
        return f"by chance alone {mean} on average, and above {high} one time in twenty"
    if finding.name == "period":
        unknown = "a control has none of its own" if judge(own).control else "the model’s own is not known"
        expected = unknown if finding.expected is None else f"the model’s own is {finding.expected}"
        return expected if finding.p_value is None else f"{expected}; any period at all: {p_of(finding)}"
    if finding.name in ("inside_gap", "boundary_loss"):
        at = ", ".join(map(str, finding.detail["boundary"]))
        return f"boundary: phase {at}" if at else "no phase is at a boundary"
    if finding.name in ("depth", "steps") and finding.p_value is not None:
        return f"any at all: {p_of(finding)}"
    if finding.name == "interaction" and finding.p_value is None:
        return "the layouts cannot tell it from source and query alone"
    if finding.name == "missing":
        return f"by phase: {p_of(finding)}" if finding.p_value is not None else ""
    return f"phases mod {finding.stride}" if finding.name == "phase_test" else ""


def _finding_row(finding: Finding) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        if finding.name == "period":
            return "none" if value is None else str(int(value))
        if value is None:
            return "–"
        return number(value if finding.outcome == "logprob" else 100 * value, 2)

    ends = ("–" if end is None else shown(end) for end in (finding.low, finding.high))
    p = ("–" if p is None else f"{p:.4f}" for p in (finding.p_value, finding.detail.get("p_holm")))
    stride = "–" if finding.stride is None else str(finding.stride)
    counts = (str(finding.n_blocks), str(finding.n_clusters))
    return (
        *(plain(finding.condition), finding.name, finding.outcome, stride, shown(finding.value)),
        *(*ends, *p, *counts),
    )
