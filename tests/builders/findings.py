"""Hand-made findings and conditions: sentences, figures and pages are tested without computing statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from phasescope.observations import Observations
from phasescope.records import Finding, Observation
from phasescope.runs import RunDescription
from phasescope.statistics.analyses import Analysis, ConditionAnalysis
from phasescope.statistics.conditions import Condition
from phasescope.statistics.verdict import by_condition, judge
from tests.descriptions import described

STEEP = [0.33, 0.70, 0.40, 0.93, 0.91, 0.62, 0.67, 0.04]
EVEN = [0.97, 0.96, 0.97, 0.97, 0.96, 0.97, 0.97, 0.96]

Make = Callable[..., list[Finding]]


def finding(condition: str, name: str, value: float | None, **fields: Any) -> Finding:
    """A finding over 48 questions in 4 contexts."""
    return Finding(
        condition=condition,
        name=name,
        value=value,
        method=f"method of {name}",
        n_blocks=48,
        n_clusters=4,
        **fields,
    )


def findings(
    condition: str,
    curve: list[float],
    *,
    expected: int | None,
    period: int | None,
    spread: tuple[float, float | None, float | None],
    p: float | None = None,
) -> list[Finding]:
    """Everything that is found of one condition with that curve; its phase SD is given as value, low, high."""
    fold, mean, worst = len(curve), sum(curve) / len(curve), min(curve)
    p = p if p is not None else 0.0005 if period else 0.61

    def rates(name: str, modulus: int) -> list[Finding]:
        return [
            finding(
                condition,
                name,
                curve[residue % fold],
                low=max(0.0, curve[residue % fold] - 0.03),
                high=min(1.0, curve[residue % fold] + 0.03),
                stride=modulus,
                residue=residue,
            )
            for residue in range(modulus)
        ]

    return [
        finding(condition, "mean_accuracy", mean, low=mean - 0.02, high=min(1.0, mean + 0.02)),
        finding(
            condition,
            "worst_residue",
            worst,
            residue=curve.index(worst),
            stride=24,
            low=0.0,
            high=worst + 0.02,
        ),
        finding(condition, "phase_sd", spread[0], low=spread[1], high=spread[2], stride=fold),
        finding(condition, "split_half_gap", max(curve) - worst, stride=fold),
        finding(
            condition, "raw_gap", max(curve) - worst, stride=fold, detail={"null_mean": 0.02, "null_95": 0.03}
        ),
        finding(condition, "phase_test", None, p_value=p, stride=fold),
        finding(condition, "paired_test", None, p_value=p, stride=fold),
        finding(
            condition,
            "period",
            period,
            p_value=p,
            expected=expected,
            detail={"tested": [2, 3, 4, 8], "not_testable": [15, 16]},
        ),
        finding(condition, "smallest_detectable_effect", 0.013, stride=fold),
        *rates("phase_rate", fold),
        *rates("residue_rate", 24),
    ]


def analysis_of(
    conditions: Sequence[Condition],
    findings: Sequence[Finding],
    runs: dict[str, RunDescription] | None = None,
    draws: int = 2000,
) -> Analysis:
    """The analysis of a run that was not measured; its runs are described by their conditions if not at all."""
    own = by_condition(findings)
    if runs is None:
        described = {c.run: tuple(o.described for o in conditions if o.run == c.run) for c in conditions}
        runs = {
            run: RunDescription(schema=2, seed=0, versions={}, conditions=listed)
            for run, listed in described.items()
        }
    analysed = [
        ConditionAnalysis(c, tuple(own.get(c.name, ())), judge(own[c.name]) if c.name in own else None, None)
        for c in conditions
    ]
    return Analysis(runs, tuple(analysed), 0, draws)


@pytest.fixture
def sensitive() -> Make:
    """A condition of stride 8 that forgets at phase 7."""
    return lambda condition="w8s8": findings(
        condition, STEEP, expected=8, period=8, spread=(0.28, 0.26, 0.30)
    )


@pytest.fixture
def flat() -> Make:
    """A condition of stride 8 without a phase effect."""
    return lambda condition="four-heads": findings(
        condition, EVEN, expected=8, period=None, spread=(0.0, 0.0, 0.008)
    )


@pytest.fixture
def control() -> Make:
    """An uncompressed condition without a phase effect."""
    return lambda condition="full": findings(
        condition, EVEN, expected=None, period=None, spread=(0.0, 0.0, 0.007)
    )


@pytest.fixture
def undecided() -> Make:
    """A condition whose phase SD excludes 0 although no period is found."""
    return lambda condition="faint": findings(
        condition, EVEN, expected=8, period=None, spread=(0.01, 0.002, 0.018), p=0.2
    )


@pytest.fixture
def make_condition() -> Callable[..., Condition]:
    """A condition of 4 contexts × 24 layouts × 3 questions whose answers at phase 7 are wrong."""

    def make(name: str, control: bool = False, run: str = "run") -> Condition:
        seen = [
            Observation(
                condition=name,
                trial=f"{context}-{layout}-{question}",
                cluster=f"c{context}",
                block=f"c{context}/k{question}",
                layout=layout,
                source_position=layout + 2 * question,
                query_position=99,
                prompt_tokens=100,
                answer=1,
                score=float(control or (layout + 2 * question) % 8 != 7),
            )
            for context in range(4)
            for layout in range(24)
            for question in range(3)
        ]
        return Condition(name, run, described(name, [] if control else [8]), 8, Observations(seen))

    return make
