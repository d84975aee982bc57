"""How it was measured, in words with the run's own numbers, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..catalog import PROTOCOLS
from ..errors import UnknownNameError
from ..records import Finding
from ..statistics import position_balance
from .arms import Arm
from .verdict import by_arm, find, plain

COLUMNS = (
    "Arm",
    "Protocol",
    "Contexts",
    "Questions",
    "Layouts",
    "Prompts",
    "Tokens each",
    "Depth balance",
    "Own stride",
    "Strides tested",
    "Not testable",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the analysis was asked for."""

    folder: Path
    seed: int
    draws: int


@dataclass(frozen=True, slots=True)
class Method:
    """What the last sections fill into their text and tables.

    Attributes:
        settings: what the analysis was asked for.
        seeds: the seed of each run by its label.
        unfinished: warnings about arms that have not answered all their trials.
        protocols: what was asked, one paragraph per protocol and settings.
        rows: one row per arm for `columns`.
        definitions: finding name and how it was computed.
        compared: over how many arms p-values are corrected, at most.
        commands: command lines that lead to the same report.
        versions: what the numbers may depend on.
    """

    settings: Settings
    seeds: dict[str, int]
    unfinished: list[str]
    protocols: list[str]
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    definitions: list[tuple[str, str]]
    compared: int
    commands: list[str]
    versions: list[tuple[str, str]]


def describe(
    arms: Sequence[Arm], runs: dict[str, dict[str, Any]], findings: Sequence[Finding], settings: Settings
) -> Method:
    """Put the method of a report together from its runs, its arms and its findings."""
    grouped = by_arm(findings)
    return Method(
        settings=settings,
        seeds={plain(label): run["seed"] for label, run in runs.items()},
        unfinished=list(_unfinished(runs, arms)),
        protocols=list(_protocols(runs)),
        columns=COLUMNS,
        rows=[_row(arm, grouped.get(arm.name, [])) for arm in arms],
        definitions=sorted({finding.name: finding.method for finding in reversed(findings)}.items()),
        compared=max((int(finding.detail.get("arms_compared", 0)) for finding in findings), default=0),
        commands=_commands(runs, settings),
        versions=_versions(runs, arms),
    )


def _unfinished(runs: dict[str, dict[str, Any]], arms: Sequence[Arm]) -> Iterator[str]:
    """A warning per arm that has answered fewer trials than planned."""
    planned = {
        (label, arm["name"]): arm["protocol"]["plan"]["trials"]
        for label, run in runs.items()
        for arm in run["arms"]
    }
    for (_, name), trials, arm in zip(planned, planned.values(), arms, strict=True):
        if len(arm.observations) < trials:
            yield f"Not finished: {plain(name)} has answered {len(arm.observations):,} of {trials:,} prompts."


def _protocols(runs: dict[str, dict[str, Any]]) -> Iterator[str]:
    """One paragraph per protocol with its settings, in the order of first use."""
    told = set()
    for run in runs.values():
        for arm in run["arms"]:
            protocol = arm["protocol"]
            settings = ", ".join(
                f"{k} {value}" for k, value in protocol["settings"].items() if value is not None
            )
            paragraph = (
                f"Protocol {protocol['name']}, which moves the {protocol['moves']}. "
                f"{_summary(protocol['name'])}Settings: {settings}."
            )
            if paragraph not in told:
                told.add(paragraph)
                yield paragraph


def _summary(protocol: str) -> str:
    """The first line of the protocol's own documentation; nothing for one that is not installed here."""
    try:
        words = (PROTOCOLS.load(protocol).__doc__ or "").strip().partition("\n\n")[0]
    except (UnknownNameError, ImportError):
        return ""
    return " ".join(words.split()) + " " if words else ""


def _row(arm: Arm, findings: Sequence[Finding]) -> tuple[str, ...]:
    seen, period = arm.observations, find(findings, "period")
    detail = {} if period is None else period.detail
    own = "none" if arm.control else "not known" if arm.stride is None else str(arm.stride)
    return (
        plain(arm.name, 200),
        arm.protocol,
        f"{len({o.cluster for o in seen}):,}",
        f"{len({o.block for o in seen}):,}",
        f"{len({o.layout for o in seen}):,}",
        f"{len(seen):,}",
        f"{np.mean([o.prompt_tokens for o in seen]):.0f}" if seen else "–",
        _balance(arm),
        own,
        _ranges(detail.get("tested", ())),
        _ranges(detail.get("not_testable", ())),
    )


def _ranges(strides: Sequence[int]) -> str:
    """Strides in rising order as people write them: 2–12, 16, 32."""
    runs: list[list[int]] = []
    for stride in strides:
        if runs and stride == runs[-1][-1] + 1:
            runs[-1].append(stride)
        else:
            runs.append([stride])
    return (
        ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
        or "none"
    )


def _balance(arm: Arm) -> str:
    """How far the residue groups differ in mean and SD of the folded position, in tokens."""
    if not arm.observations:
        return "–"
    balance = position_balance(arm.observations, coordinate=arm.coordinate)
    return f"{balance.mean_spread:.2f}, {balance.sd_spread:.2f}"


def _commands(runs: dict[str, dict[str, Any]], settings: Settings) -> list[str]:
    """One `measure` per run, then the `report`; folders are named as they are called, not where they lie."""
    folders = [f"runs/{label}" for label in runs]
    commands = [
        _measure(run["arms"], run["seed"], folder) for run, folder in zip(runs.values(), folders, strict=True)
    ]
    out = [] if len(runs) == 1 else ["--out", f"runs/{settings.folder.resolve().name}"]
    asked = [*folders, *out, "--seed", str(settings.seed), "--draws", str(settings.draws)]
    return [*commands, shlex.join(["phasescope", "report", *asked])]


def _measure(arms: Sequence[dict[str, Any]], seed: int, folder: str) -> str:
    """The command line that measures these arms, or that there is none."""
    if not arms or any(arm["backend"]["backend"] != "transformers" for arm in arms):
        return f"# {folder} was measured from Python: phasescope.runner.run with the arms in its run.json"
    backend, settings = arms[0]["backend"], arms[0]["protocol"]["settings"]
    words = [
        "phasescope",
        "measure",
        *dict.fromkeys(arm["backend"]["model"] for arm in arms),
        "--out",
        folder,
    ]
    for protocol in dict.fromkeys(arm["protocol"]["name"] for arm in arms):
        words += ["--protocol", protocol]
    for option in ("pairs", "contexts", "questions", "residues"):
        if settings.get(option) is not None:
            words += [f"--{option}", str(settings[option])]
    words += ["--seed", str(seed), "--device", backend["device"], "--threads", str(backend["threads"])]
    return shlex.join(words)


def _versions(runs: dict[str, dict[str, Any]], arms: Sequence[Arm]) -> list[tuple[str, str]]:
    rows = []
    for label, run in runs.items():
        of = f"{plain(label)}: " if len(runs) > 1 else ""
        rows += [
            (f"{of}{package}", version or "not installed") for package, version in run["versions"].items()
        ]
    for arm in arms:
        facts = ", ".join(
            f"{key} {_brief(value)}" for key, value in sorted(arm.backend.items()) if key != "path"
        )
        rows.append((plain(arm.name), plain(facts, 600)))
    return rows


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return "none" if not value else "; ".join(_brief(part) for part in value)
    if isinstance(value, dict):
        return " ".join(f"{key} {_brief(part)}" for key, part in value.items())
    return str(value)
