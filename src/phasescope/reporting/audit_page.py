"""The page of an audit, and what a terminal prints of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ..auditing.results import PhaseRates, Results
from ..auditing.run import FEWEST, Audit, StrideAudit, write
from ..files import write_atomic
from ..wording import columns
from .command import audit_command
from .figure import Figure, figure
from .figures import Curve, phase_frame, residue_bars
from .pages import filled
from .svg import element, even_ticks
from .words import p_words, percent, plain

COLUMNS = (
    "stride",
    "visited",
    "samples per phase",
    "p even",
    "effective",
    "hidden, points",
    "blind phases",
    "would see, points",
)
"""Of the table of strides."""
WIDEST = 128
"""Phases that are drawn as bars; more are given as numbers only."""


def write_audit(found: Audit, folder: Path) -> str:
    """Write audit.json and audit.html.

    Returns:
        verdict, table and file names, as a terminal prints them.
    """
    write(found, folder)
    write_atomic(folder / "audit.html", render(found))
    return f"{summary(found)}\nreport: {folder / 'audit.html'}"


def summary(found: Audit) -> str:
    """The verdict, what was left out, and a line per stride."""
    lines = [f"{found.settings.source}: {found.verdict}", _counted(found), *_notes(found)]
    lines += ["", *columns([COLUMNS, *map(_cells, found.strides)])]
    lines += [f"\nfix: {_fix_words(found)}"] if found.fixed else []
    return "\n".join(lines)


def _cells(found: StrideAudit) -> tuple[str, ...]:
    """One stride as text, in the order of `COLUMNS`."""
    coverage, counts = found.coverage, found.coverage.count_S
    known = [loss for loss in found.detectable_S if loss is not None]
    losses = [f"{100 * end:.0f}" for end in (min(known), max(known))] if known else ["none"]
    unseen = len(found.detectable_S) - len(known)
    return (
        str(found.stride),
        f"{coverage.visited} of {found.stride}",
        _from_to(f"{counts.min():,}", f"{counts.max():,}"),
        "< 0.001" if coverage.p_value < 0.001 else f"{coverage.p_value:.3f}",
        f"{coverage.effective:.1f}",
        f"{100 * found.hidden_S.max():.0f}",
        str(found.blind),
        _from_to(*losses) + (f", {unseen} none" if known and unseen else ""),
    )


def _from_to(low: str, high: str = "") -> str:
    """A range, or the one value where both ends are the same or there is one."""
    return low if high in ("", low) else f"{low} to {high}"


def _counted(found: Audit) -> str:
    """How many samples have a place, and why others have none."""
    placed = found.placed
    words = f"{len(placed.position_N):,} of {placed.total:,} samples have a token position"
    if placed.located:
        words += f" ({placed.located:,} looked up in their prompts)"
    left_out = [
        f"{why}: {count:,} (first: {placed.examples[why][0]})" for why, count in placed.left_out.items()
    ]
    return words + (f"; left out: {'; '.join(left_out)}" if left_out else "")


def _notes(found: Audit) -> list[str]:
    """What a reader must know before the numbers are believed."""
    locator, placed = found.settings.locator, found.placed
    notes = [found.note] if found.note else []
    if not placed.located and locator.tokenizer is not None:
        notes.append("The tokenizer was not needed: the file gives positions and no text to look them up in.")
    if 0 < placed.located < len(placed.position_N):
        notes.append("Some positions are the file's own and some were looked up; they may count differently.")
    if locator.bos and not locator.start:
        notes.append("This tokenizer puts nothing in front of a text, so --bos changes nothing.")
    scored = int((~np.isnan(placed.score_N)).sum())
    if found.results is None and scored:
        notes.append(
            f"Only {scored} placed samples have a score; scores are tested for phases from {FEWEST} on."
        )
    return notes


def _fix_words(found: Audit) -> str:
    fixed = found.fixed
    assert fixed is not None
    words = (
        f"{fixed.out}: {fixed.padded:,} of {len(fixed.pad_N):,} samples padded by {fixed.tokens:,} tokens in all, "
        f"at most {int(fixed.pad_N.max(initial=0))} each; balanced: {', '.join(map(str, fixed.strides))}"
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


def render(found: Audit) -> str:
    """The whole page as one HTML text that needs nothing beside it."""
    shown = [stride for stride in found.strides if stride.stride <= WIDEST and _telling(stride, found)]
    return filled(
        "audit.html.j2",
        audit=found,
        counted=_counted(found),
        notes=_notes(found),
        columns=COLUMNS,
        rows=[*map(_cells, found.strides)],
        sections=[(stride, list(_figures(stride, found))) for stride in shown],
        results=_results(found.results) if found.results else None,
        fix=_fix_words(found) if found.fixed else None,
        facts=_facts(found),
        command=audit_command(found.settings),
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


def _figures(stride: StrideAudit, found: Audit) -> list[Figure]:
    """Exposure, and accuracy where every phase has a score."""
    figures = [exposure_bars(f"exposure-{stride.stride}", stride)]
    if found.results is not None:
        rates = next(r for r in found.results.by_stride if r.stride == stride.stride)
        figures += [_accuracy_bars(rates, found.results.period)] if rates.count_S.min() else []
    return figures


def exposure_bars(key: str, stride: StrideAudit) -> Figure:
    """Samples at each phase over the line of even exposure."""
    coverage, phases = stride.coverage, stride.stride
    counts = coverage.count_S.tolist()
    even, ticks = coverage.total / phases, even_ticks(0, max(counts), whole=True)
    frame = phase_frame(phases, "needle", ticks=ticks, factor=1.0, unit="")
    parts: list[Markup] = [frame.axes()]
    for phase, count in enumerate(counts):
        if count:
            parts.append(frame.bar(phase, count, "bar condition"))
        else:  # a phase without any sample must not look like a thin bar
            ring = min(3.5, 0.36 * frame.step)
            parts.append(
                element("circle", cx=frame.x(phase), cy=frame.y(0) - 5, r=ring, class_="ring condition")
            )
    parts.append(frame.level(even, "median"))
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
    columns = ("Phase", "Samples", "Could hide, points", "Would see, points")
    return figure(key, f"Samples by phase, stride {phases}", caption, frame.size, parts, columns, rows)


def _accuracy_bars(rates: PhaseRates, period: int | None) -> Figure:
    """Accuracy by phase with Wilson's intervals."""
    curve = Curve("scores", "condition", *(end.tolist() for end in (rates.rate_S, rates.low_S, rates.high_S)))
    drawn = residue_bars(f"accuracy-{rates.stride}", curve, period, "needle")
    caption = f"{drawn.caption} Whiskers: Wilson's 95 % intervals, samples counting as independent."
    return replace(drawn, title=f"Accuracy by phase, stride {rates.stride}", caption=caption)


def _results(found: Results) -> dict[str, Any]:
    """The scores' part of the page."""
    sentence = f"{found.words[0].upper()}{found.words[1:]}."
    if found.p_value is not None:
        test = f"one test over {len(found.tested)} strides: {p_words(found.p_value)}"
        sentence = f"Period found: {found.period or 'none'}; {test}."
    return {
        "sentence": f"{found.total:,} samples have a score, {percent(found.accuracy)} on average. {sentence}",
        "method": found.method,
        "not_testable": ", ".join(map(str, found.not_testable)),
        "rows": [_rates_row(rates) for rates in found.by_stride],
    }


def _rates_row(rates: PhaseRates) -> tuple[str, ...]:
    lowest = int(np.nanargmin(rates.rate_S))
    low, high = 100 * float(rates.low_S[lowest]), 100 * float(rates.high_S[lowest])
    spread = (
        "–" if rates.spread is None else "{:.1f} [{:.1f}, {:.1f}]".format(*(100 * x for x in rates.spread))
    )
    return (
        str(rates.stride),
        "–" if rates.p_value is None else p_words(rates.p_value),
        spread,
        f"{percent(float(rates.rate_S[lowest]))} [{low:.1f}, {high:.1f}]",
        f"{lowest} ({int(rates.count_S[lowest]):,} samples)",
    )


def _facts(found: Audit) -> list[tuple[str, str]]:
    settings, locator = found.settings, found.settings.locator
    facts = [("source", settings.source), ("format", found.format)]
    for part in ("prompt", "needle", "position", "score"):
        facts.append((f"column of the {part}", ", ".join(getattr(found.placed.columns, part)) or "none"))
    if locator.tokenizer is not None:
        facts += [
            ("tokenizer", f"{locator.tokenizer.name}, digest {locator.tokenizer.digest[:16]}"),
            ("chat template", "yes" if locator.chat else "no"),
            ("tokens in front of every text", str(locator.start)),
            ("located", locator.find or f"the needle, {locator.occurrence} occurrence"),
        ]
    facts += [
        ("tokens added to given positions", str(locator.offset)),
        ("seed, permutations", f"{settings.seed}, {settings.draws:,}"),
    ]
    return [(name, plain(value, 300)) for name, value in facts]
