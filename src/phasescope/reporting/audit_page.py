"""The page of an audit, and what a terminal prints of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..auditing.reading import Report
from ..auditing.results import PhaseRates, Results
from ..auditing.run import Audit, Settings, StrideAudit, audit, write
from ..auditing.sentence import COLUMNS, cells, table
from ..files import write_atomic
from ..records import Finding
from ..statistics.verdict import p_words, percent, plain
from .figures import Curve, Figure, residue_bars
from .pages import filled
from .svg import Frame, box, drawing, element, line, text

WIDEST = 128
"""Phases that are drawn as bars; more are given as numbers only."""


def build_audit(settings: Settings, folder: Path, report: Report = lambda done, total: None) -> str:
    """Audit a benchmark, write audit.json and audit.html, and say what was found.

    Returns:
        verdict, table and file names, as a terminal prints them.
    """
    found = audit(settings, report)
    write(found, folder)
    write_atomic(folder / "audit.html", render(found))
    return f"{summary(found)}\nreport: {folder / 'audit.html'}"


def summary(found: Audit) -> str:
    """The verdict, what was left out, and a line per stride."""
    lines = [f"{found.settings.source}: {found.verdict}", _counted(found)]
    lines += [note for note in (found.note, *_doubts(found)) if note]
    lines += ["", table([_cells(stride) for stride in found.strides])]
    lines += [_fix_words(found)] if found.fixed else []
    return "\n".join(lines)


def _cells(stride: StrideAudit) -> tuple[str, ...]:
    coverage = stride.coverage
    return cells(
        stride.stride,
        coverage.visited,
        (int(coverage.count_S.min()), int(coverage.count_S.max())),
        coverage.p_value,
        coverage.effective,
        float(stride.hidden_S.max()),
        stride.blind,
        stride.detectable_S,
    )


def _counted(found: Audit) -> str:
    """How many samples have a place, and why others have none."""
    placed = found.placed
    words = f"{len(placed.position_N):,} of {placed.total:,} samples have a token position"
    if placed.located:
        words += f" ({placed.located:,} looked up in their prompts)"
    reasons = [
        f"{reason}: {count:,} (first: {placed.examples[reason][0]})"
        for reason, count in placed.left_out.items()
    ]
    return words + (f"; left out: {'; '.join(reasons)}" if reasons else "")


def _doubts(found: Audit) -> list[str]:
    """What a reader must know before the numbers are believed."""
    doubts = []
    if not found.placed.located and found.settings.locator.tokenizer is not None:
        doubts.append(
            "The tokenizer was not needed: the file gives positions and no text to look them up in."
        )
    if 0 < found.placed.located < len(found.placed.position_N):
        doubts.append(
            "Some positions are the file's own and some were looked up; they may count differently."
        )
    if found.settings.locator.bos and not found.settings.locator.start:
        doubts.append("This tokenizer puts nothing in front of a text, so --bos changes nothing.")
    return doubts


def _fix_words(found: Audit) -> str:
    fixed = found.fixed
    assert fixed is not None
    count = len(fixed.pad_N)
    words = (
        f"\nfix: {fixed.out}: {fixed.padded:,} of {count:,} samples padded by {fixed.tokens:,} tokens in all, at most "
        f"{int(fixed.pad_N.max(initial=0))} each; balanced: {', '.join(map(str, fixed.strides))}"
    )
    if fixed.failed:
        words += (
            f"; {fixed.failed:,} could not be padded without changing their own tokens, and stay as they were"
        )
    if fixed.untouched:
        words += f"; {fixed.untouched:,} without a position stay as they were"
    if not np.all(np.isnan(found.placed.score_N)):
        words += "; scores of padded samples are emptied, as they belong to the prompts before"
    return words


@dataclass(frozen=True)
class Section:
    """One stride on the page."""

    key: str
    title: str
    sentence: str
    figures: list[Figure]


def render(found: Audit) -> str:
    """The whole page as one HTML text that needs nothing beside it."""
    shown = [stride for stride in found.strides if stride.stride <= WIDEST and _telling(stride, found)]
    return filled(
        "audit.html.j2",
        title=plain(found.settings.source, 120),
        verdict=found.verdict,
        counted=_counted(found),
        notes=[note for note in (found.note, *_doubts(found)) if note],
        columns=COLUMNS,
        rows=[_cells(stride) for stride in found.strides],
        sections=[_section(stride, found) for stride in shown],
        results=_results(found.results) if found.results else None,
        fix=_fix_words(found).strip() if found.fixed else None,
        bar=percent(found.settings.bar),
        accuracy=percent(found.accuracy),
        facts=_facts(found),
        command=_command(found.settings),
    )


def _telling(stride: StrideAudit, found: Audit) -> bool:
    """Whether a stride is worth a drawing: asked for, uneven, or with phases that are not visited."""
    coverage = stride.coverage
    return (
        stride.stride in found.settings.chosen
        or coverage.visited < min(stride.stride, coverage.total)
        or coverage.p_value < 0.01
        or (found.results is not None and stride.stride == found.results.period)
    )


def _section(stride: StrideAudit, found: Audit) -> Section:
    coverage = stride.coverage
    figures = [exposure_bars(f"exposure-{stride.stride}", stride)]
    if found.results is not None:
        rates = next(r for r in found.results.by_stride if r.stride == stride.stride)
        drawn = _accuracy_bars(rates, found.results.period)
        figures += [drawn] if drawn else []
    sentence = (
        f"{coverage.visited} of {stride.stride} phases are visited, {coverage.effective:.1f} in effect; under even "
        f"exposure counts so uneven have {p_words(coverage.p_value)} ({coverage.p_method}). A model that is right "
        f"everywhere else may lose {100 * float(stride.hidden_S.max()):.0f} points at phase "
        f"{int(stride.hidden_S.argmax())} and pass; blind, it passes at up to {stride.blind} phases."
    )
    return Section(f"stride-{stride.stride}", f"Stride {stride.stride}", sentence, figures)


def exposure_bars(key: str, stride: StrideAudit) -> Figure:
    """Samples at each phase over the line of even exposure."""
    coverage = stride.coverage
    counts, phases = coverage.count_S.tolist(), stride.stride
    frame = Frame(phases, f"phase of the needle (position mod {phases})")
    even, most = coverage.total / phases, max(max(counts), 1)
    parts = []
    for share in (0.0, 0.5, 1.0):
        height = frame.y(share)
        parts.append(
            line((frame.left, height), (frame.width - frame.right, height), "grid" if share else "axis")
        )
        parts.append(text(frame.left - 7, height + 4.5, f"{share * most:,.0f}", "tick", "end"))
    every = 1
    while phases > 12 * every:
        every *= 2
    for phase, count in enumerate(counts):
        x, half = frame.x(phase), 0.36 * frame.step
        if count:
            parts.append(box(x - half, frame.y(count / most), x + half, frame.y(0), "bar condition"))
        else:
            # A phase without any sample must not look like a thin bar.
            parts.append(
                element("circle", cx=x, cy=frame.y(0) - 5, r=min(3.5, half), class_="ring condition")
            )
        if phase % every == 0:
            parts.append(text(x, frame.height - frame.bottom + 18, str(phase), "tick"))
    height = frame.y(even / most)
    parts.append(line((frame.left, height), (frame.width - frame.right, height), "median"))
    parts.append(
        text((frame.left + frame.width - frame.right) / 2, frame.height - 7, frame.label, "axis-name")
    )
    empty = phases - coverage.visited
    caption = f"{coverage.total:,} samples; the line is even exposure, {even:,.1f} each. " + (
        f"Rings: {empty} phases that no sample visits." if empty else "Every phase is visited."
    )
    rows = [
        (str(phase), f"{count:,}", f"{100 * hidden:.0f}", "none" if loss is None else f"{100 * loss:.0f}")
        for phase, (count, hidden, loss) in enumerate(
            zip(counts, stride.hidden_S.tolist(), stride.detectable_S, strict=True)
        )
    ]
    title = f"Samples by phase, stride {phases}"
    svg = drawing(key, title, caption, (frame.width, frame.height), *parts)
    return Figure(svg, title, caption, ("Phase", "Samples", "Could hide, points", "Would see, points"), rows)


def _accuracy_bars(rates: PhaseRates, period: int | None) -> Figure | None:
    """Accuracy by phase with Wilson's intervals, where every phase has a score."""
    if int(rates.count_S.min()) == 0:
        return None
    findings = [
        Finding(
            condition="scores",
            name="phase_rate",
            value=float(rates.rate_S[phase]),
            low=float(rates.low_S[phase]),
            high=float(rates.high_S[phase]),
            method="Wilson",
            n_blocks=int(rates.count_S[phase]),
            n_clusters=int(rates.count_S[phase]),
            stride=rates.stride,
            residue=phase,
        )
        for phase in range(rates.stride)
    ]
    drawn = residue_bars(f"accuracy-{rates.stride}", Curve("scores", "condition", findings), period, "needle")
    caption = f"{drawn.caption} Whiskers: Wilson's 95 % intervals, samples counting as independent."
    return replace(drawn, title=f"Accuracy by phase, stride {rates.stride}", caption=caption)


def _results(found: Results) -> dict[str, Any]:
    """The scores' part of the page."""
    period = "none" if found.period is None else str(found.period)
    global_p = "not testable" if found.p_value is None else p_words(found.p_value)
    rows = []
    for rates in found.by_stride:
        spread = rates.spread
        lowest = int(np.nanargmin(rates.rate_S))
        rows.append(
            (
                str(rates.stride),
                "–" if rates.p_value is None else p_words(rates.p_value),
                "–"
                if spread is None
                else f"{100 * spread[0]:.1f} [{100 * spread[1]:.1f}, {100 * spread[2]:.1f}]",
                f"{percent(float(rates.rate_S[lowest]))} [{100 * float(rates.low_S[lowest]):.1f}, "
                f"{100 * float(rates.high_S[lowest]):.1f}]",
                f"{lowest} ({int(rates.count_S[lowest]):,} samples)",
            )
        )
    return {
        "sentence": (
            f"{found.total:,} samples have a score, {percent(found.accuracy)} on average. Period found: {period}; one "
            f"test over {len(found.tested)} strides: {global_p}."
        ),
        "method": found.method,
        "not_testable": ", ".join(map(str, found.not_testable)),
        "columns": ("stride", "p, corrected", "phase SD, points", "lowest phase rate", "at phase"),
        "rows": rows,
    }


def _facts(found: Audit) -> list[tuple[str, str]]:
    locator = found.settings.locator
    facts = [("source", found.settings.source), ("format", found.format)]
    for part in ("prompt", "needle", "position", "score"):
        facts.append((f"column of the {part}", ", ".join(getattr(found.placed.columns, part)) or "none"))
    if locator.tokenizer is not None:
        facts.append(("tokenizer", f"{locator.tokenizer.name}, digest {locator.tokenizer.digest[:16]}"))
        facts.append(("chat template", "yes" if locator.chat else "no"))
        facts.append(("tokens in front of every text", str(locator.start)))
        facts.append(("located", locator.find or f"the needle, {locator.occurrence} occurrence"))
    facts.append(("tokens added to given positions", str(locator.offset)))
    facts.append(("seed, permutations", f"{found.settings.seed}, {found.settings.draws:,}"))
    return [(name, plain(value, 300)) for name, value in facts]


def _command(settings: Settings) -> str:
    """A command line that makes the same audit; a tokenizer is named by its folder only."""
    words = ["phasescope", "audit", settings.source]
    locator = settings.locator
    if settings.format:
        words += ["--format", settings.format]
    if locator.tokenizer is not None:
        words += ["--tokenizer", locator.tokenizer.name]
    for name, column in settings.columns.items():
        words += [f"--{name}", column] if column is not None else []
    words += ["--find", locator.find] if locator.find else []
    words += ["--occurrence", locator.occurrence] if locator.occurrence != "only" else []
    words += ["--chat"] * locator.chat + ["--bos"] * locator.bos
    words += ["--offset", str(locator.offset)] if locator.offset else []
    for stride in sorted({*(settings.strides or ()), *settings.model_strides}):
        words += ["--stride", str(stride)]
    words += ["--bar", f"{settings.bar:g}", "--seed", str(settings.seed), "--draws", str(settings.draws)]
    words += ["--accuracy", f"{settings.accuracy:g}"] if settings.accuracy is not None else []
    return shlex.join(words)
