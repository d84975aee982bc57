"""How it was measured, in words with the run's own numbers, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..catalog import PROTOCOLS
from ..errors import UnknownNameError
from ..grid import WindowGrid
from ..records import Finding
from ..statistics import position_balance
from ..statistics.conditions import Arm
from ..statistics.verdict import by_arm, find, plain
from . import losses
from .sweep_page import SWEEP, sweep_command

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
        unfinished: warnings about arms that have not answered all their trials, or lost some.
        protocols: what was asked, one paragraph per protocol and settings.
        rows: one row per arm for `columns`.
        definitions: finding name and how it was computed.
        compared: over how many arms p-values are corrected, at most.
        commands: command lines that lead to the same report.
        versions: what the numbers may depend on.
        lost: one row per arm and reason for prompts that were dropped, for `lost_columns`.
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
    lost_columns: tuple[str, ...] = losses.COLUMNS
    lost: list[tuple[str, ...]] = field(default_factory=list)


def describe(
    arms: Sequence[Arm], runs: dict[str, dict[str, Any]], findings: Sequence[Finding], settings: Settings
) -> Method:
    """Put the method of a report together from its runs, its arms and its findings."""
    grouped = by_arm(findings)
    return Method(
        settings=settings,
        seeds={plain(label): run["seed"] for label, run in runs.items()},
        unfinished=[*_unfinished(runs, arms), *losses.warnings(arms)],
        protocols=list(_protocols(runs)),
        columns=COLUMNS,
        rows=[_row(arm, grouped.get(arm.name, [])) for arm in arms],
        lost=losses.rows(arms),
        definitions=sorted({finding.name: finding.method for finding in reversed(findings)}.items()),
        compared=max((int(finding.detail.get("arms_compared", 0)) for finding in findings), default=0),
        commands=_commands(runs, settings),
        versions=_versions(runs, arms),
    )


def _unfinished(runs: dict[str, dict[str, Any]], arms: Sequence[Arm]) -> Iterator[str]:
    """A warning per arm that has been asked fewer trials than planned."""
    planned = {
        (label, arm["name"]): arm["protocol"]["plan"]["trials"]
        for label, run in runs.items()
        for arm in run["arms"]
    }
    for (_, name), trials, arm in zip(planned, planned.values(), arms, strict=True):
        asked = len(arm.observations) + len(arm.dropped)
        if asked < trials:
            yield f"Not finished: {plain(name)} has answered {asked:,} of {trials:,} prompts."


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
    balance = position_balance(arm.observations, arm.residues, arm.coordinate)
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
    if arms and arms[0]["protocol"]["name"] == SWEEP:
        return sweep_command(arms, folder)
    kinds = {arm["backend"]["backend"] for arm in arms}
    if kinds not in ({"transformers"}, {"openai"}):
        return f"# {folder} was measured from Python: phasescope.running.runner.run with the arms in its run.json"
    backend, settings = arms[0]["backend"], arms[0]["protocol"]["settings"]
    server = kinds == {"openai"}
    models = dict.fromkeys(arm["backend"]["model"] for arm in arms)
    words = ["phasescope", "measure", *models, "--out", folder]
    words += _server(backend) if server else []
    for protocol in dict.fromkeys(arm["protocol"]["name"] for arm in arms):
        words += ["--protocol", protocol]
    for option in ("prompt_tokens", "pairs", "contexts", "questions", "residues", "groups", "value_words"):
        if settings.get(option) is not None:
            words += [f"--{option.replace('_', '-')}", str(settings[option])]
    words += ["--chat"] if settings.get("chat") else []
    words += ["--seed", str(seed)]
    words += [] if server else ["--device", backend["device"], "--threads", str(backend["threads"])]
    return shlex.join(words)


def _server(backend: dict[str, Any]) -> list[str]:
    """The options of a server, whose address no run knows."""
    words = ["--backend", "openai", "--base-url", "URL"]
    words += ["--tokenizer", backend["tokenizer"]["name"]] if backend.get("tokenizer") else []
    words += ["--prefix-cache"] if backend.get("prefix_cache") == "kept warm" else []
    words += ["--unverified"] if "nothing" in backend.get("asked", {}).values() else []
    words += [] if backend.get("top_logprobs") is None else ["--top-logprobs", str(backend["top_logprobs"])]
    grids = backend.get("grids")
    written = [] if grids is None else [str(WindowGrid(**grid)) for grid in grids] or ["none"]
    for grid in written:
        words += ["--grid", grid]
    return words


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
