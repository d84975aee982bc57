"""The analysis of one or several runs: findings, verdict and phase profile of every condition."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from ..columns import Tabular, arrow_table, observation_table
from ..errors import UsageError
from ..files import dump_json, read_record, write_atomic
from ..records import SCHEMA, Finding, Record
from ..runs import RunDescription
from .analysis import analyse
from .conditions import Condition
from .intervals import SIGNIFICANT
from .missing import find_missing
from .profile import Profile, write_profiles
from .sweep import analyse_sweep
from .verdict import Judgement, correct, judge

SWEEP = "sweep"
"""Name of the protocol whose runs are padding sweeps."""
Progress = Callable[[int, int], None]
"""Called with the number of conditions that are analysed, and of all."""


@dataclass(frozen=True)
class ConditionAnalysis:
    """What was found of one condition.

    Attributes:
        condition: with everything that it answered.
        findings: with p-values corrected over all conditions; none without observations.
        judgement: the verdict on them; None without observations.
        profile: accuracy by phase; None where a phase was not visited, or the query was moved.
    """

    condition: Condition
    findings: tuple[Finding, ...]
    judgement: Judgement | None
    profile: Profile | None

    @property
    def name(self) -> str:
        """The condition's name in the report."""
        return self.condition.name


@dataclass(frozen=True, repr=False)
class Analysis(Tabular):
    """What was found of one or several runs.

    Attributes:
        runs: each run's description by its label.
        conditions: in the order of their runs.
        seed: of permutations and halvings, with the condition's name.
        draws: permutations per test.
    """

    runs: dict[str, RunDescription]
    conditions: tuple[ConditionAnalysis, ...]
    seed: int
    draws: int

    @property
    def findings(self) -> list[Finding]:
        """All findings, in the order of findings.json."""
        return [finding for condition in self.conditions for finding in condition.findings]

    def __getitem__(self, name: str) -> ConditionAnalysis:
        """The analysis of the condition with that name."""
        return next(one for one in self.conditions if one.name == name)

    def write(self, folder: Path) -> None:
        """Write findings.json, profile.json and observations.parquet."""
        write_findings(folder / "findings.json", self.findings)
        write_profiles(folder / "profile.json", [one.profile for one in self.conditions if one.profile])
        buffer = pa.BufferOutputStream()
        pq.write_table(self.observations(), buffer)
        write_atomic(folder / "observations.parquet", buffer.getvalue().to_pybytes())

    def observations(self) -> Any:
        """All observations as a `pyarrow.Table`; with several runs a first column names the run."""
        parts = [one.condition.observations for one in self.conditions]
        table = observation_table(parts)
        if len(self.runs) > 1:
            counts = [len(part) for part in parts]
            table = table.add_column(
                0, "run", [np.repeat([one.condition.run for one in self.conditions], counts)]
            )
        return table

    def to_arrow(self) -> Any:
        """The findings as a `pyarrow.Table`, one row each; `detail` is JSON text."""
        return arrow_table(Finding, self.findings)

    def _rows(self) -> list[tuple[str, str]]:
        return [
            (one.name, one.judgement.state if one.judgement else "nothing observed")
            for one in self.conditions
        ]

    def __repr__(self) -> str:
        states = ", ".join(f"{name}: {state}" for name, state in self._rows())
        return f"Analysis({len(self.findings)} findings; {states})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(state)}</td></tr>"
            for name, state in self._rows()
        )
        return f"<table>{rows}</table>"


def analyse_conditions(
    conditions: Sequence[Condition],
    runs: dict[str, RunDescription],
    *,
    seed: int = 0,
    draws: int = 2000,
    progress: Progress = lambda done, total: None,
) -> Analysis:
    """Analyse the conditions of one or several runs, as `read_conditions` reads them.

    A condition's numbers depend on the seed and its name, not on the other conditions, except for the correction
    over conditions.

    Args:
        conditions: of all runs, which may be unfinished.
        runs: each run's description by its label.
        seed: of the permutations and halvings.
        draws: permutations per test.
        progress: called with the number of conditions that are analysed, and of all.

    Raises:
        UsageError: if every prompt was dropped.
    """
    _refuse_empty(conditions)
    # Holm's smallest p over m conditions is m / (draws + 1): it must be able to fall below the level.
    draws = max(draws, math.ceil(len(conditions) / SIGNIFICANT))
    found: list[list[Finding]] = []
    for done, condition in enumerate(conditions):
        progress(done, len(conditions))
        found.append(_findings(condition, conditions, seed, draws))
    progress(len(conditions), len(conditions))
    every = iter(correct([finding for own in found for finding in own]))
    analysed = []
    for condition, own in zip(conditions, found, strict=True):
        findings = tuple(next(every) for _ in own)
        judgement = judge(findings) if findings else None
        profile = Profile.from_findings(findings, judgement) if judgement else None
        analysed.append(ConditionAnalysis(condition, findings, judgement, profile))
    return Analysis(runs, tuple(analysed), seed, draws)


def _refuse_empty(conditions: Sequence[Condition]) -> None:
    """Refuse runs in which every prompt was dropped."""
    lost = [condition for condition in conditions if condition.dropped]
    if lost and not any(condition.observations for condition in conditions):
        why = "; ".join(f"{one.name}: {one.drop_reasons}" for one in lost)
        raise UsageError(f"nothing to analyse, every prompt was dropped: {why}; fix that and measure again")


def _findings(condition: Condition, conditions: Sequence[Condition], seed: int, draws: int) -> list[Finding]:
    """One condition's findings; a control is also folded by the strides of the conditions that it controls."""
    if not condition.observations:
        return []
    generator = np.random.default_rng([seed, *condition.name.encode()])
    if condition.protocol == SWEEP:
        return [_marked(f, condition) for f in _sweep_findings(condition, generator, draws)]
    findings = findings_at(condition, condition.fold, generator, draws)
    findings.append(
        find_missing(
            condition.observations,
            condition.dropped,
            stride=condition.fold,
            coordinate=condition.coordinate,
            rng=generator.spawn(1)[0],
            draws=draws,
        )
    )
    controlled = {other.fold for other in conditions if other.control_among(conditions) is condition}
    for fold in sorted(controlled - {condition.fold}):
        # Only the rates are kept, which need no permutations.
        findings += [f for f in findings_at(condition, fold, generator, 2) if f.name == "phase_rate"]
    return [_marked(finding, condition) for finding in findings]


def findings_at(
    condition: Condition, fold: int, rng: np.random.Generator, draws: int = 2000
) -> list[Finding]:
    """What is found of one condition at one fold, not corrected over others; see `analyse`."""
    try:
        return analyse(
            condition.observations,
            stride=condition.stride,
            fold=fold,
            residues=condition.described.protocol.residues,
            coordinate=condition.coordinate,
            boundary=condition.boundary,
            rng=rng,
            draws=draws,
        )
    except UsageError as error:
        if not condition.dropped:
            raise
        lost = f"{len(condition.dropped):,} prompts were dropped: {condition.drop_reasons}"
        raise UsageError(f"{error}; {lost}") from None


def _sweep_findings(condition: Condition, rng: np.random.Generator, draws: int) -> list[Finding]:
    """A sweep's findings, with the compared texts and the families of padding that repeat."""
    protocol = condition.described.protocol
    answers = {prompt.name: list(prompt.answers) for prompt in protocol.prompts}
    findings = analyse_sweep(
        condition.observations,
        stride=condition.stride,
        comparable=protocol.comparable,
        coordinate=condition.coordinate,
        rng=rng,
        draws=draws,
    )
    for finding in findings:
        if finding.name == "flips":
            finding.detail["answers"] = answers.get(finding.detail["prompt"], [])
        if finding.name == "period":
            finding.detail["pads_repeat"] = protocol.repeating_families
    return findings


def _marked(finding: Finding, condition: Condition) -> Finding:
    """Add the condition's name in the report, to a period whether it is a control's, to a mean what was dropped."""
    marks: dict[str, object] = {"control": condition.control} if finding.name == "period" else {}
    if finding.name == "mean_accuracy" and condition.dropped:
        marks = {"dropped_trials": len(condition.dropped), "dropped_for": condition.drop_reasons}
    return finding.model_copy(update={"condition": condition.name, "detail": {**finding.detail, **marks}})


class _FindingsFile(Record):
    version: Literal[1] = Field(SCHEMA, alias="schema")
    findings: tuple[Finding, ...]


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write findings.json; a period always states the expected one, null for a control."""
    always = dict.fromkeys(("value", "low", "high", "p_value"))
    listed = [
        {
            **always,
            **({"expected": None} if f.name == "period" else {}),
            **f.model_dump(mode="json", exclude_none=True),
        }
        for f in findings
    ]
    write_atomic(path, dump_json({"schema": SCHEMA, "findings": listed}))


def read_findings(path: Path) -> list[Finding]:
    """Read a findings.json.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: if it is not what `report` writes.
    """
    return list(read_record(path, _FindingsFile).findings)
