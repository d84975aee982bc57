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
from ..records import Finding
from ..runs import ModelInfo, RunDescription
from ..statistics import position_balance
from ..statistics.conditions import Condition
from ..statistics.verdict import by_condition, find, plain
from . import losses
from .sweep_page import SWEEP, sweep_command

COLUMNS = (
    "Condition",
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
        unfinished: warnings about conditions that have not answered all their trials, or lost some.
        protocols: what was asked, one paragraph per protocol and settings.
        rows: one row per condition for `columns`.
        definitions: finding name and how it was computed.
        compared: over how many conditions p-values are corrected, at most.
        commands: command lines that lead to the same report.
        versions: what the numbers may depend on.
        lost: one row per condition and reason for prompts that were dropped, for `lost_columns`.
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
    conditions: Sequence[Condition],
    runs: dict[str, RunDescription],
    findings: Sequence[Finding],
    settings: Settings,
) -> Method:
    """Put the method of a report together from its runs, its conditions and its findings."""
    grouped = by_condition(findings)
    return Method(
        settings=settings,
        seeds={plain(label): run.seed for label, run in runs.items()},
        unfinished=[*_unfinished(runs, conditions), *losses.warnings(conditions)],
        protocols=list(_protocols(runs)),
        columns=COLUMNS,
        rows=[_row(condition, grouped.get(condition.name, [])) for condition in conditions],
        lost=losses.rows(conditions),
        definitions=sorted({finding.name: finding.method for finding in reversed(findings)}.items()),
        compared=max((int(finding.detail.get("conditions_compared", 0)) for finding in findings), default=0),
        commands=_commands(runs, settings),
        versions=_versions(runs, conditions),
    )


def _unfinished(runs: dict[str, RunDescription], conditions: Sequence[Condition]) -> Iterator[str]:
    """A warning per condition that has been asked fewer trials than planned."""
    planned = [
        (condition.name, condition.protocol.plan.trials)
        for run in runs.values()
        for condition in run.conditions
    ]
    for (name, trials), condition in zip(planned, conditions, strict=True):
        asked = len(condition.observations) + len(condition.dropped)
        if asked < trials:
            yield f"Not finished: {plain(name)} has answered {asked:,} of {trials:,} prompts."


def _protocols(runs: dict[str, RunDescription]) -> Iterator[str]:
    """One paragraph per protocol with its settings, in the order of first use."""
    told = set()
    for run in runs.values():
        for protocol in (condition.protocol for condition in run.conditions):
            settings = ", ".join(
                f"{k} {value}" for k, value in protocol.settings.items() if value is not None
            )
            paragraph = (
                f"Protocol {protocol.name}, which moves the {protocol.moves}. "
                f"{_summary(protocol.name)}Settings: {settings}."
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


def _row(condition: Condition, findings: Sequence[Finding]) -> tuple[str, ...]:
    seen, period = condition.observations, find(findings, "period")
    detail = {} if period is None else period.detail
    own = "none" if condition.control else "not known" if condition.stride is None else str(condition.stride)
    return (
        plain(condition.name, 200),
        condition.protocol,
        f"{len({o.cluster for o in seen}):,}",
        f"{len({o.block for o in seen}):,}",
        f"{len({o.layout for o in seen}):,}",
        f"{len(seen):,}",
        f"{np.mean([o.prompt_tokens for o in seen]):.0f}" if seen else "–",
        _balance(condition),
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


def _balance(condition: Condition) -> str:
    """How far the residue groups differ in mean and SD of the folded position, in tokens."""
    if not condition.observations:
        return "–"
    balance = position_balance(condition.observations, condition.residues, condition.coordinate)
    return f"{balance.mean_spread:.2f}, {balance.sd_spread:.2f}"


def _commands(runs: dict[str, RunDescription], settings: Settings) -> list[str]:
    """One `measure` per run, then the `report`; folders are named as they are called, not where they lie."""
    folders = [f"runs/{label}" for label in runs]
    commands = [
        run.command or _measure(run, folder) for run, folder in zip(runs.values(), folders, strict=True)
    ]
    out = [] if len(runs) == 1 else ["--out", f"runs/{settings.folder.resolve().name}"]
    asked = [*folders, *out, "--seed", str(settings.seed), "--draws", str(settings.draws)]
    return [*commands, shlex.join(["phasescope", "report", *asked])]


def _measure(run: RunDescription, folder: str) -> str:
    """The command line that measures the conditions of a run that kept none, or that there is none."""
    conditions = run.conditions
    if conditions[0].protocol.name == SWEEP:
        return sweep_command(conditions, folder)
    kinds = {condition.backend.backend for condition in conditions}
    if kinds not in ({"transformers"}, {"openai"}):
        return f"# {folder} was measured from Python: phasescope.running.runner.run with the conditions in its run.json"
    backend, settings = conditions[0].backend, conditions[0].protocol.settings
    server = kinds == {"openai"}
    models = dict.fromkeys(condition.backend.model for condition in conditions)
    words = ["phasescope", "measure", *models, "--out", folder]
    words += _server(backend) if server else []
    for protocol in dict.fromkeys(condition.protocol.name for condition in conditions):
        words += ["--protocol", protocol]
    for option in ("prompt_tokens", "pairs", "contexts", "questions", "residues", "groups", "value_words"):
        if settings.get(option) is not None:
            words += [f"--{option.replace('_', '-')}", str(settings[option])]
    words += ["--chat"] if settings.get("chat") else []
    words += ["--seed", str(run.seed)]
    words += [] if server else ["--device", str(backend.device), "--threads", str(backend.threads)]
    return shlex.join(words)


def _server(backend: ModelInfo) -> list[str]:
    """The options of a server, whose address no run knows."""
    words = ["--backend", "openai", "--base-url", "URL"]
    words += ["--tokenizer", backend.tokenizer.name] if backend.tokenizer else []
    words += ["--prefix-cache"] if backend.prefix_cache == "kept warm" else []
    words += ["--unverified"] if "nothing" in backend.asked.values() else []
    words += [] if backend.top_logprobs is None else ["--top-logprobs", str(backend.top_logprobs)]
    written = [] if backend.grids is None else [str(grid) for grid in backend.grids] or ["none"]
    for grid in written:
        words += ["--grid", grid]
    return words


def _versions(runs: dict[str, RunDescription], conditions: Sequence[Condition]) -> list[tuple[str, str]]:
    rows = []
    for label, run in runs.items():
        of = f"{plain(label)}: " if len(runs) > 1 else ""
        rows += [(f"{of}{package}", version or "not installed") for package, version in run.versions.items()]
    for condition in conditions:
        facts = ", ".join(
            f"{key} {_brief(value)}"
            for key, value in sorted(condition.described.backend.facts().items())
            if key != "path"
        )
        rows.append((plain(condition.name), plain(facts, 600)))
    return rows


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return "none" if not value else "; ".join(_brief(part) for part in value)
    if isinstance(value, dict):
        return " ".join(f"{key} {_brief(part)}" for key, part in value.items())
    return str(value)
