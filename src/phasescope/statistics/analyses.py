"""The analysis of one or several runs: every condition's findings, what they say, and its phase profile."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from ..columns import arrow_table, pandas_frame
from ..errors import UsageError, plain
from ..files import dump_json, read_record, write_atomic
from ..records import SCHEMA, Finding, Observation, Record, count_reasons
from ..runs import RunDescription
from .analysis import analyse
from .balance import PositionBalance, position_balance
from .conditions import Condition, read_conditions
from .correction import correct
from .profile import Profile, write_profiles
from .sweep import analyse_sweep
from .table import Floats
from .verdict import Judgement, judge

SWEEP = "sweep"
"""Name of the protocol whose runs are padding sweeps."""
Progress = Callable[[int, int], None]
"""Told the conditions that are analysed, and all."""


@dataclass(frozen=True)
class ConditionAnalysis:
    """What was found of one condition.

    Attributes:
        condition: with everything that it answered.
        findings: its findings, p-values corrected over the conditions beside it; none without observations.
        judgement: what they say; None without observations.
        profile: its accuracy by phase; None where a phase was not visited, or the query was moved.
    """

    condition: Condition
    findings: tuple[Finding, ...]
    judgement: Judgement | None
    profile: Profile | None

    @property
    def name(self) -> str:
        """The condition's name in the report."""
        return self.condition.name

    def balance(self) -> PositionBalance | None:
        """How far the residue groups differ in depth; None without observations."""
        one = self.condition
        return position_balance(one.observations, one.residues, one.coordinate) if one.observations else None

    def context_shares(self) -> Floats:
        """Accuracy of every context at every phase of the condition's fold.

        Returns:
            shape [contexts, phases]; contexts that miss a phase are left out.
        """
        one = self.condition
        if not one.observations:
            return np.empty((0, 0))
        _, context = np.unique([o.cluster for o in one.observations], return_inverse=True)
        phase = np.array([one.position(o) % one.fold for o in one.observations])
        cell, cells = context * one.fold + phase, (int(context.max()) + 1) * one.fold
        counts = np.bincount(cell, minlength=cells).reshape(-1, one.fold)
        right = np.bincount(cell, [o.score for o in one.observations], cells).reshape(-1, one.fold)
        whole = (counts > 0).all(axis=1)
        shares: Floats = right[whole] / counts[whole]
        return shares


@dataclass(frozen=True, repr=False)
class Analysis:
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

    @property
    def title(self) -> str:
        """The labels of the runs."""
        return ", ".join(self.runs)

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
        rows = [(one.condition.run, o) for one in self.conditions for o in one.condition.observations]
        table = arrow_table(Observation, [o for _, o in rows])
        if len(self.runs) > 1:
            table = table.add_column(0, "run", [[run for run, _ in rows]])
        return table

    def to_arrow(self) -> Any:
        """The findings as a `pyarrow.Table`, one row each; `detail` is JSON text."""
        return arrow_table(Finding, self.findings)

    def to_pandas(self) -> Any:
        """The findings as a `pandas.DataFrame`, one row each.

        Raises:
            MissingExtraError: if pandas is not installed.
        """
        return pandas_frame(self.to_arrow())

    def _rows(self) -> list[tuple[str, str]]:
        return [
            (one.name, one.judgement.state if one.judgement else "nothing observed")
            for one in self.conditions
        ]

    def __repr__(self) -> str:
        said = ", ".join(f"{name}: {state}" for name, state in self._rows())
        return f"Analysis({len(self.findings)} findings; {said})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(state)}</td></tr>"
            for name, state in self._rows()
        )
        return f"<table>{rows}</table>"


def analyse_run(
    folders: Sequence[Path],
    *,
    seed: int = 0,
    draws: int = 2000,
    progress: Progress = lambda done, total: None,
) -> Analysis:
    """Analyse one or several runs.

    A condition's numbers depend on the seed and its name, not on the conditions beside it, up to the correction
    over conditions.

    Args:
        folders: run folders, finished or not.
        seed: of the permutations and halvings.
        draws: permutations per test.
        progress: told the conditions that are analysed, and all.

    Raises:
        UsageError: if a folder holds no run, or all was dropped.
        BrokenRecordError: if a file of a run is damaged.
    """
    conditions, runs = read_conditions(folders)
    return analyse_conditions(conditions, runs, seed=seed, draws=draws, progress=progress)


def analyse_conditions(
    conditions: Sequence[Condition],
    runs: dict[str, RunDescription],
    *,
    seed: int = 0,
    draws: int = 2000,
    progress: Progress = lambda done, total: None,
) -> Analysis:
    """As `analyse_run`, of runs that are read already."""
    _refuse_empty(conditions)
    found: list[list[Finding]] = []
    for done, condition in enumerate(conditions):
        progress(done, len(conditions))
        found.append(_findings(condition, conditions, seed, draws))
    progress(len(conditions), len(conditions))
    every = iter(correct([finding for own in found for finding in own]))
    analysed = [
        _judged(condition, tuple(next(every) for _ in own))
        for condition, own in zip(conditions, found, strict=True)
    ]
    return Analysis(runs, tuple(analysed), seed, draws)


def _judged(condition: Condition, findings: tuple[Finding, ...]) -> ConditionAnalysis:
    judgement = judge(findings) if findings else None
    return ConditionAnalysis(condition, findings, judgement, Profile.from_findings(condition.name, findings))


def _refuse_empty(conditions: Sequence[Condition]) -> None:
    """Refuse runs of which every asked prompt was dropped."""
    lost = [condition for condition in conditions if condition.dropped]
    if lost and not any(condition.observations for condition in conditions):
        why = "; ".join(f"{one.name}: {reasons(one)}" for one in lost)
        raise UsageError(f"nothing to analyse, every prompt was dropped: {why}; fix that and measure anew")


def reasons(condition: Condition) -> str:
    """Why prompts of a condition were dropped, and how many for each reason; empty where none was."""
    return plain(count_reasons(line.dropped for line in condition.dropped), 300)


def _findings(condition: Condition, conditions: Sequence[Condition], seed: int, draws: int) -> list[Finding]:
    """One condition's findings; a control is also folded by the strides of the conditions that it stands beside."""
    if not condition.observations:
        return []
    generator = np.random.default_rng([seed, *condition.name.encode()])
    if condition.protocol == SWEEP:
        return [_marked(f, condition) for f in _sweep_findings(condition, generator, draws)]
    findings = _at_fold(condition, condition.fold, generator, draws)
    beside = {other.fold for other in conditions if other.control_among(conditions) is condition}
    for fold in sorted(beside - {condition.fold}):
        # Only the rates are kept, and they rest on no permutation.
        findings += [f for f in _at_fold(condition, fold, generator, 2) if f.name == "phase_rate"]
    return [_marked(finding, condition) for finding in findings]


def _at_fold(condition: Condition, fold: int, rng: np.random.Generator, draws: int) -> list[Finding]:
    try:
        return analyse(
            condition.observations,
            stride=condition.stride,
            fold=fold,
            residues=condition.residues,
            coordinate=condition.coordinate,
            rng=rng,
            draws=draws,
        )
    except UsageError as error:
        if not condition.dropped:
            raise
        lost = f"{len(condition.dropped):,} prompts were dropped: {reasons(condition)}"
        raise UsageError(f"{error}; {lost}") from None


def _sweep_findings(condition: Condition, rng: np.random.Generator, draws: int) -> list[Finding]:
    """A sweep's findings, with the texts that were compared and the paddings that repeat."""
    asked = condition.described.protocol
    answers = {prompt.name: list(prompt.answers) for prompt in asked.prompts}
    findings = analyse_sweep(
        condition.observations,
        stride=condition.stride,
        comparable=asked.comparable,
        coordinate=condition.coordinate,
        rng=rng,
        draws=draws,
    )
    for finding in findings:
        if finding.name == "flips":
            finding.detail["answers"] = answers.get(finding.detail["prompt"], [])
        if finding.name == "period":
            finding.detail["pads_repeat"] = asked.repeating_families
    return findings


def _marked(finding: Finding, condition: Condition) -> Finding:
    """With the condition's name in the report; a period says whether that is a control, a mean what it lacks."""
    marks: dict[str, object] = {"control": condition.control} if finding.name == "period" else {}
    if finding.name == "mean_accuracy" and condition.dropped:
        marks = {"dropped_trials": len(condition.dropped), "dropped_for": reasons(condition)}
    return finding.model_copy(update={"condition": condition.name, "detail": {**finding.detail, **marks}})


class _FindingsFile(Record):
    version: Literal[1] = Field(SCHEMA, alias="schema")
    findings: tuple[Finding, ...]


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write findings.json; a period always says which one was expected, null for a control."""
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
