"""The figures of an explanation: heads against phases, gates, the coverage score, and rolled gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..explaining.result import CoverageScores, ExplanationResult, HeadGate, Loss
from .figure import Figure, figure
from .figures import Curve, curve_on_band, curves, phase_frame
from .svg import Frame, box, dot, element, even_ticks, path, spacing, text
from .words import number, percent, plain, points

CELLS = 32
"""Phases up to which cells of a map hold their numbers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a map: its name, its values, and which of them are framed."""

    name: str
    values: Sequence[float]
    framed: Sequence[bool] = ()


def heat_map(
    key: str, title: str, caption: str, rows: Sequence[Row], below: str, *, signed: bool, scale: float
) -> Figure:
    """Rows of cells, one per phase, that are the darker the larger their value is.

    Args:
        key: an identifier that is unique in the page.
        title: of the figure.
        caption: of the figure.
        rows: with values in shares.
        below: what the columns count.
        signed: whether negative values are told apart, by another colour and their sign.
        scale: the value of a full cell.
    """
    count = max(len(row.values) for row in rows)
    left, top, width, height = 92.0, 10.0, 460.0, 30.0
    step, floor = (width - left - 6) / count, top + height * len(rows)
    parts = []
    for index, row in enumerate(rows):
        y = top + height * index
        parts.append(text(left - 8, y + height / 2 + 4.5, plain(row.name, 14), "tick", "end"))
        for column, value in enumerate(row.values):
            x, share = left + step * column, min(abs(value) / scale, 1.0)
            kind = "rate" if not signed else "loss" if value >= 0 else "gain"
            size, opacity = {"width": step, "height": height}, round(0.06 + 0.8 * share, 2)
            parts.append(element("rect", x=x, y=y, **size, class_=f"cell {kind}", fill_opacity=opacity))
            if count <= CELLS / 2:
                parts.append(text(x + step / 2, y + height / 2 + 4, number(100 * value, 0), "cell-number"))
    for index, row in enumerate(rows):
        for column, framed in enumerate(row.framed):
            if framed:
                x, y = left + step * column, top + height * index
                parts.append(box(x + 1, y + 1, x + step - 1, y + height - 1, "frame"))
    for column in range(0, count, spacing(count, 16)):
        parts.append(text(left + step * (column + 0.5), floor + 17, str(column), "tick"))
    parts.append(text((left + width) / 2, floor + 38, below, "axis-name"))
    table = [(plain(row.name), *(number(100 * value) for value in row.values)) for row in rows]
    columns = ("", *(str(column) for column in range(count)))
    return figure(key, title, caption, (width, floor + 46), parts, columns, table)


def loss_curve(key: str, loss: Loss, coordinate: str) -> Figure:
    """Accuracy lost at each phase without one unit, with its band."""
    curve, values = Curve.of(loss.unit, "condition", loss.phase, loss.low, loss.high), loss.phase
    ticks = even_ticks(min(0.0, *values, *curve.lows), max(0.0, *values, *curve.highs))
    frame = phase_frame(len(values), coordinate, ticks=ticks, unit="")
    most, least = max(values), min(values)
    caption = (
        f"Points of accuracy lost without {plain(loss.unit)}: most at phase {values.index(most)} "
        f"({points(most)}), least at phase {values.index(least)} ({points(least)}); "
        "below 0 more is right without it. Band: 95 % over all heads together."
    )
    ends = zip(values, curve.lows, curve.highs, strict=True)
    rows = [(str(phase), *map(points, three)) for phase, three in enumerate(ends)]
    title = f"Lost without {plain(loss.unit, 40)}"
    columns = ("Phase", "Lost, points", "Low", "High")
    return figure(key, title, caption, frame.size, curves(frame, [curve]), columns, rows)


def gate_bars(key: str, gate: HeadGate) -> Figure:
    """Mean gate weight of each slot, with the softmax of the learned bias as a dashed line."""
    curve = Curve.of(gate.name, "condition", gate.mean, gate.low, gate.high)
    slots, prior = len(gate.mean), gate.prior or ()
    highest = max(*curve.values, *curve.highs, *(prior or (0.0,)))
    frame = Frame(slots, "slot of the window", ticks=even_ticks(0, highest))
    parts = [frame.axes()]
    for slot, (value, low, high) in enumerate(zip(curve.values, curve.lows, curve.highs, strict=True)):
        parts.append(frame.bar(slot, value, "bar condition"))
        parts.append(frame.whisker(slot, low, high))
    parts.append(frame.level(1 / slots, "even"))
    if prior:
        spots = frame.points(prior)
        parts += [path(spots, "prior"), *(dot(spot, 3.2, "dot prior") for spot in spots if slots <= 32)]
    recurs = (
        "does not vary"
        if gate.recurrence is None
        else f"varies by slot, on every input alike, for {percent(gate.recurrence)} of its variance"
    )
    caption = (
        f"{gate.name}: the weight {recurs}, and by content for the rest; entropy {percent(gate.entropy)} of the "
        f"uniform gate's. Dotted: uniform.{' Dashed: the softmax of the learned bias alone.' if prior else ''}"
    )
    columns = ("Slot", "Mean weight", "Low", "High", *(("Bias alone",) if prior else ()))
    rows = [
        (str(slot), *row, *([percent(prior[slot])] if prior else [])) for slot, row in enumerate(curve.rows())
    ]
    return figure(key, f"Gate of {gate.name}", caption, frame.size, parts, columns, rows)


def score_curve(key: str, score: CoverageScores, found: ExplanationResult) -> Figure:
    """What the gates keep of each phase, under the measured accuracy."""
    frame = phase_frame(found.stride, found.coordinate)
    curve = Curve.of(found.condition, "condition", found.curve.rate, found.curve.low, found.curve.high)
    parts = [frame.axes()]
    for phase, value in enumerate(score.phases):
        parts.append(frame.bar(phase, value, f"bar {'weak' if phase == score.weakest else 'control'}"))
    parts += curve_on_band(frame, curve)
    caption = (
        f"Bars: the coverage score, from gates alone; it names phase {score.weakest}. Line: measured accuracy; weakest "
        f"are phases {', '.join(map(str, score.measured_weakest))}. {'A hit' if score.hit else 'A miss'}; a phase "
        f"drawn at random would hit with {percent(score.chance)}."
    )
    pairs = zip(score.phases, curve.values, strict=True)
    rows = [(str(phase), percent(value), percent(rate)) for phase, (value, rate) in enumerate(pairs)]
    title = "What the gates keep, and what is recalled"
    return figure(key, title, caption, frame.size, parts, ("Phase", "Score", "Accuracy"), rows)
