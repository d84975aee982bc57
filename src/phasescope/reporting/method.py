"""How it was measured, in words with the run's own numbers, and how to do it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..catalog import PROTOCOLS
from ..errors import UnknownNameError
from ..runs import ProtocolDescription
from ..statistics.analyses import Analysis, ConditionAnalysis
from ..statistics.conditions import Condition
from ..statistics.verdict import find
from .command import report_commands
from .words import plain

HEAVY = 0.5
"""Share of a layout's prompts whose loss is named."""


@dataclass(frozen=True, slots=True)
class Method:
    """What the last sections fill into their text and tables.

    Attributes:
        seed, draws: of the analysis.
        seeds: the seed of each run by its label.
        unfinished: warnings about conditions that have not answered all their trials, or lost some.
        protocols: what was asked, one paragraph per protocol and settings.
        rows: one row per condition: what was asked of it, and which strides could be tested.
        definitions: finding name and how it was computed.
        compared: over how many conditions p-values are corrected, at most.
        commands: command lines that lead to the same report.
        versions: what the numbers may depend on.
        lost: one row per condition and reason for prompts that were dropped.
    """

    seed: int
    draws: int
    seeds: dict[str, int] = field(default_factory=dict)
    unfinished: Sequence[str] = ()
    protocols: Sequence[str] = ()
    rows: Sequence[tuple[str, ...]] = ()
    definitions: Sequence[tuple[str, str]] = ()
    compared: int = 0
    commands: Sequence[str] = ()
    versions: Sequence[tuple[str, str]] = ()
    lost: Sequence[tuple[str, ...]] = ()


def describe(analysis: Analysis, folder: Path) -> Method:
    """Put the method of a report together.

    Args:
        analysis: of the runs.
        folder: where the report is written.
    """
    runs, findings = analysis.runs, analysis.findings
    conditions = [one.condition for one in analysis.conditions]
    return Method(
        seed=analysis.seed,
        draws=analysis.draws,
        seeds={plain(label): run.seed for label, run in runs.items()},
        unfinished=[*_unfinished(analysis), *loss_warnings(conditions)],
        protocols=list(
            dict.fromkeys(_protocol(one.protocol) for run in runs.values() for one in run.conditions)
        ),
        rows=[_row(one) for one in analysis.conditions],
        lost=loss_rows(conditions),
        definitions=sorted({finding.name: finding.method for finding in reversed(findings)}.items()),
        compared=max((int(finding.detail.get("conditions_compared", 0)) for finding in findings), default=0),
        commands=report_commands(runs, folder.resolve().name, analysis.seed, analysis.draws),
        versions=list(_versions(analysis)),
    )


def _unfinished(analysis: Analysis) -> Iterator[str]:
    """A warning per condition that has been asked fewer trials than planned."""
    described = [one for run in analysis.runs.values() for one in run.conditions]
    for planned, one in zip(described, analysis.conditions, strict=True):
        trials = planned.protocol.plan.trials
        asked = len(one.condition.observations) + len(one.condition.dropped)
        if asked < trials:
            yield f"Not finished: {plain(one.name)} has answered {asked:,} of {trials:,} prompts."


def _protocol(protocol: ProtocolDescription) -> str:
    """A paragraph about a protocol with its settings."""
    settings = ", ".join(f"{name} {value}" for name, value in protocol.settings.items() if value is not None)
    moves = f"Protocol {protocol.name}, which moves the {protocol.moves}."
    return " ".join(part for part in (moves, _summary(protocol.name), f"Settings: {settings}.") if part)


def _summary(protocol: str) -> str:
    """The first line of the protocol's own documentation; nothing for one that is not installed here."""
    try:
        words = (PROTOCOLS.load(protocol).__doc__ or "").strip().partition("\n\n")[0]
    except (UnknownNameError, ImportError):
        return ""
    return " ".join(words.split())


def _row(one: ConditionAnalysis) -> tuple[str, ...]:
    condition, seen, period = one.condition, one.condition.observations, find(one.findings, "period")
    detail, apart = {} if period is None else period.detail, condition.depth_spread()
    own = "none" if condition.control else "not known" if condition.stride is None else str(condition.stride)
    return (
        plain(condition.name, 200),
        condition.protocol,
        *(f"{len(seen.texts(part)[1]):,}" for part in ("cluster", "block")),
        f"{len(np.unique(seen.integers('layout'))):,}",
        f"{len(seen):,}",
        f"{seen.integers('prompt_tokens').mean():.0f}" if seen else "–",
        "–" if apart is None else f"{apart[0]:.2f}, {apart[1]:.2f}",
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
    words = (f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
    return ", ".join(words) or "none"


def _versions(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Packages of each run, and what each backend said of itself."""
    for label, run in analysis.runs.items():
        of = f"{plain(label)}: " if len(analysis.runs) > 1 else ""
        for package, version in run.versions.items():
            yield f"{of}{package}", version or "not installed"
    for one in analysis.conditions:
        facts = [
            f"{key} {_brief(value)}"
            for key, value in sorted(one.condition.described.backend.facts().items())
            if key != "path"
        ]
        yield plain(one.name), plain(", ".join(facts), 600)


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(_brief(part) for part in value) or "none"
    if isinstance(value, dict):
        return " ".join(f"{key} {_brief(part)}" for key, part in value.items())
    return str(value)


def loss_warnings(conditions: Sequence[Condition]) -> Iterator[str]:
    """One sentence per condition that lost prompts, with the layouts that lost most of theirs.

    Phases are compared within complete blocks, so a layout that is lost whole leaves the design without
    a word: all blocks are then complete without it.
    """
    for condition in conditions:
        if not condition.dropped:
            continue
        lost, planned = len(condition.dropped), len(condition.dropped) + len(condition.observations)
        heavy = list(_heavy_layouts(condition))
        unbalanced = f" The layouts are no longer balanced: {', '.join(heavy)}." if heavy else ""
        share = f"{plain(condition.name)} lost {lost:,} of {planned:,} prompts"
        yield f"Dropped: {share}: {condition.drop_reasons}.{unbalanced}"


def loss_rows(conditions: Sequence[Condition]) -> list[tuple[str, ...]]:
    """What could not be observed: condition, reason, prompts, and in how many layouts, the commonest reason first."""
    found: list[tuple[str, ...]] = []
    for condition in conditions:
        for reason, count in Counter(line.dropped for line in condition.dropped).most_common():
            layouts = {line.layout for line in condition.dropped if line.dropped == reason}
            found.append((plain(condition.name, 200), plain(reason, 200), f"{count:,}", f"{len(layouts):,}"))
    return found


def _heavy_layouts(condition: Condition) -> Iterator[str]:
    lost = Counter(line.layout for line in condition.dropped)
    kept = Counter(condition.observations.integers("layout").tolist())
    for layout, count in sorted(lost.items()):
        if count > HEAVY * (count + kept[layout]):
            yield f"layout {layout} lost {count:,} of {count + kept[layout]:,}"
