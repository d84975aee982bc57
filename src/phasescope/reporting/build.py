"""From run folders to findings.json, profile.json, observations.parquet and report.html."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

from ..errors import UsageError
from ..files import dump_json, write_atomic
from ..mitigations import Profile, write_profiles
from ..records import SCHEMA, Finding, Observation
from ..statistics import analyse, correct
from ..statistics.conditions import Condition, read_conditions
from . import losses
from .method import Settings, describe
from .run_page import render
from .sweep_page import SWEEP, sweep_findings


def build_report(
    folders: Sequence[Path], out: Path | None = None, *, seed: int = 0, draws: int = 2000
) -> Path:
    """Analyse one or several runs and write findings.json, profile.json, observations.parquet and report.html.

    The same runs, seed and draws give the same bytes. A condition's numbers depend on the seed and its name,
    not on the conditions beside it, up to the correction over conditions.

    Args:
        folders: run folders, finished or not.
        out: where to write; by default the run's own folder, which only works for a single run.
        seed: of the permutations and resamples.
        draws: permutations per test.

    Returns:
        the path of report.html.

    Raises:
        UsageError: if a folder holds no run, several runs are given without `out`, or all was dropped.
        BrokenRecordError: if a file of a run is damaged.
    """
    if out is None and len(folders) > 1:
        raise UsageError(f"{len(folders)} runs and no folder for their common report; give one with --out")
    conditions, runs = read_conditions(folders)
    _refuse_empty(conditions)
    folder = folders[0] if out is None else out
    findings = correct(
        [finding for condition in conditions for finding in findings_of(condition, conditions, seed, draws)]
    )
    write_findings(folder / "findings.json", findings)
    profiles = (Profile.from_findings(condition.name, findings) for condition in conditions)
    write_profiles(folder / "profile.json", [profile for profile in profiles if profile])
    write_atomic(folder / "observations.parquet", _parquet(conditions, several=len(runs) > 1))
    title = ", ".join(runs)
    page = render(
        title, conditions, findings, describe(conditions, runs, findings, Settings(folder, seed, draws))
    )
    write_atomic(folder / "report.html", page)
    return folder / "report.html"


def _refuse_empty(conditions: Sequence[Condition]) -> None:
    """Refuse runs of which every asked prompt was dropped."""
    lost = [condition for condition in conditions if condition.dropped]
    if lost and not any(condition.observations for condition in conditions):
        said = "; ".join(f"{condition.name}: {losses.reasons(condition)}" for condition in lost)
        raise UsageError(f"nothing to analyse, every prompt was dropped: {said}; mend that and measure anew")


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write findings.json; a period always says which one was expected, null for a control."""
    listed = []
    for finding in findings:
        record = finding.model_dump(mode="json", exclude_none=True)
        for always in (
            "value",
            "low",
            "high",
            "p_value",
            *(["expected"] if finding.name == "period" else []),
        ):
            record.setdefault(always, None)
        listed.append(record)
    write_atomic(path, dump_json({"schema": SCHEMA, "findings": listed}))


def findings_of(
    condition: Condition, conditions: Sequence[Condition], seed: int, draws: int
) -> list[Finding]:
    """One condition's findings; a control is also folded by the strides of the conditions that it stands beside."""
    if not condition.observations:
        return []
    if condition.protocol == SWEEP:
        return [_marked(finding, condition) for finding in sweep_findings(condition, seed, draws)]

    def analysed(fold: int, draws: int) -> list[Finding]:
        try:
            findings = analyse(
                condition.observations,
                stride=condition.stride,
                fold=fold,
                residues=condition.residues,
                coordinate=condition.coordinate,
                rng=np.random.default_rng([seed, *condition.name.encode()]),
                draws=draws,
            )
        except UsageError as error:
            if not condition.dropped:
                raise
            raise UsageError(
                f"{error}; {len(condition.dropped):,} prompts were dropped: {losses.reasons(condition)}"
            ) from None
        return [finding.model_copy(update={"condition": condition.name}) for finding in findings]

    findings = [_marked(finding, condition) for finding in analysed(condition.fold, draws)]
    beside = {other.fold for other in conditions if other.control_among(conditions) is condition} - {
        condition.fold
    }
    for fold in sorted(beside):
        # Only the rates are kept, and they rest on no permutation.
        findings += [finding for finding in analysed(fold, draws=2) if finding.name == "phase_rate"]
    return findings


def _marked(finding: Finding, condition: Condition) -> Finding:
    """A period says whether its condition is a control (a foreign grid may be just unknown), a mean what it lacks."""
    marks: dict[str, object] = {"control": condition.control} if finding.name == "period" else {}
    if finding.name == "mean_accuracy" and condition.dropped:
        marks = {"dropped_trials": len(condition.dropped), "dropped_for": losses.reasons(condition)}
    return finding.model_copy(update={"detail": {**finding.detail, **marks}}) if marks else finding


def _parquet(conditions: Sequence[Condition], several: bool) -> bytes:
    """All observations as one table; with several runs a first column names the run."""
    rows = [
        (condition.run, observation) for condition in conditions for observation in condition.observations
    ]
    whole = ("v", "layout", "source_position", "query_position", "prompt_tokens", "answer")
    kinds = dict.fromkeys(whole, pa.int64()) | dict.fromkeys(
        ("score", "candidate_score", "logprob", "rival_logprob"), pa.float64()
    )
    columns = {"run": pa.array([run for run, _ in rows], pa.string())} if several else {}
    for name in Observation.model_fields:
        columns[name] = pa.array([getattr(o, name) for _, o in rows], kinds.get(name, pa.string()))
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()
