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
from ..statistics.conditions import Arm, read_arms
from . import losses
from .method import Settings, describe
from .run_page import render
from .sweep_page import SWEEP, sweep_findings


def build_report(
    folders: Sequence[Path], out: Path | None = None, *, seed: int = 0, draws: int = 2000
) -> Path:
    """Analyse one or several runs and write findings.json, profile.json, observations.parquet and report.html.

    The same runs, seed and draws give the same bytes. An arm's numbers depend on the seed and its name,
    not on the arms beside it, up to the correction over arms.

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
    arms, runs = read_arms(folders)
    _refuse_empty(arms)
    folder = folders[0] if out is None else out
    findings = correct([finding for arm in arms for finding in findings_of(arm, arms, seed, draws)])
    write_findings(folder / "findings.json", findings)
    profiles = (Profile.from_findings(arm.name, findings) for arm in arms)
    write_profiles(folder / "profile.json", [profile for profile in profiles if profile])
    write_atomic(folder / "observations.parquet", _parquet(arms, several=len(runs) > 1))
    title = ", ".join(runs)
    page = render(title, arms, findings, describe(arms, runs, findings, Settings(folder, seed, draws)))
    write_atomic(folder / "report.html", page)
    return folder / "report.html"


def _refuse_empty(arms: Sequence[Arm]) -> None:
    """Refuse runs of which every asked prompt was dropped."""
    lost = [arm for arm in arms if arm.dropped]
    if lost and not any(arm.observations for arm in arms):
        said = "; ".join(f"{arm.name}: {losses.reasons(arm)}" for arm in lost)
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


def findings_of(arm: Arm, arms: Sequence[Arm], seed: int, draws: int) -> list[Finding]:
    """One arm's findings; a control is also folded by the strides of the arms that it stands beside."""
    if not arm.observations:
        return []
    if arm.protocol == SWEEP:
        return [_marked(finding, arm) for finding in sweep_findings(arm, seed, draws)]

    def analysed(fold: int, draws: int) -> list[Finding]:
        try:
            findings = analyse(
                arm.observations,
                stride=arm.stride,
                fold=fold,
                residues=arm.residues,
                coordinate=arm.coordinate,
                rng=np.random.default_rng([seed, *arm.name.encode()]),
                draws=draws,
            )
        except UsageError as error:
            if not arm.dropped:
                raise
            raise UsageError(
                f"{error}; {len(arm.dropped):,} prompts were dropped: {losses.reasons(arm)}"
            ) from None
        return [finding.model_copy(update={"arm": arm.name}) for finding in findings]

    findings = [_marked(finding, arm) for finding in analysed(arm.fold, draws)]
    beside = {other.fold for other in arms if other.control_among(arms) is arm} - {arm.fold}
    for fold in sorted(beside):
        # Only the rates are kept, and they rest on no permutation.
        findings += [finding for finding in analysed(fold, draws=2) if finding.name == "phase_rate"]
    return findings


def _marked(finding: Finding, arm: Arm) -> Finding:
    """A period says whether its arm is a control (a foreign grid may be just unknown), a mean what it lacks."""
    marks: dict[str, object] = {"control": arm.control} if finding.name == "period" else {}
    if finding.name == "mean_accuracy" and arm.dropped:
        marks = {"dropped_trials": len(arm.dropped), "dropped_for": losses.reasons(arm)}
    return finding.model_copy(update={"detail": {**finding.detail, **marks}}) if marks else finding


def _parquet(arms: Sequence[Arm], several: bool) -> bytes:
    """All observations as one table; with several runs a first column names the run."""
    rows = [(arm.run, observation) for arm in arms for observation in arm.observations]
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
