"""The report's four figures, drawn from findings as SVG, each with its numbers as a table.

Colours and strokes are classes, so that the page decides them for light and dark; nothing is told by
colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from markupsafe import Markup

from ..records import Finding
from ..statistics.table import Floats
from ..statistics.verdict import State
from .figure import Figure, figure
from .svg import Frame, Point, box, dot, element, even_ticks, line, path, text
from .words import interval_words, percent, plain, tick_words

Kind = Literal["condition", "control"]
LABEL = 24  # characters of a condition's name that fit beside a curve


@dataclass(frozen=True, slots=True)
class Curve:
    """Rates by phase with their intervals, in order of phase.

    Attributes:
        name: whose curve it is.
        kind: `condition` or `control`, as which it is drawn.
        values: one rate per phase.
        lows, highs: ends of their intervals; the rate itself where there is none.
    """

    name: str
    kind: Kind
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]

    @classmethod
    def of(cls, name: str, kind: Kind, values: Sequence[float], *sides: Sequence[float | None]) -> Self:
        """A curve with its lows and highs, where these may be missing."""
        pairs = [zip(values, side, strict=True) for side in sides]
        return cls(name, kind, values, *([v if end is None else end for v, end in side] for side in pairs))

    @classmethod
    def of_findings(cls, name: str, kind: Kind, rates: Sequence[Finding]) -> Self:
        """The curve of one finding per phase."""
        return cls.of(
            name, kind, [f.value or 0.0 for f in rates], [f.low for f in rates], [f.high for f in rates]
        )

    def rows(self) -> list[tuple[str, ...]]:
        """Rate, lower and upper end of every phase, as text."""
        ends = zip(self.values, self.lows, self.highs, strict=True)
        return [tuple(percent(end) for end in three) for three in ends]


def curves(frame: Frame, drawn: Sequence[Curve]) -> list[Markup]:
    """Axes, and curves with their names; the first one lies on top."""
    lines = [part for curve in reversed(drawn) for part in curve_on_band(frame, curve)]
    return [frame.axes(), *lines, *_names(frame, drawn)]


def curve_on_band(frame: Frame, curve: Curve) -> list[Markup]:
    """A curve on its band, with a dot per phase while there is room for dots."""
    upper, lower, middle = (frame.points(ends) for ends in (curve.highs, curve.lows, curve.values))
    band = path([*upper, *reversed(lower)], f"band {curve.kind}", closed=True)
    dots = [dot(at, 3.4, f"dot {curve.kind}") for at in middle] if frame.columns <= 32 else []
    return [band, path(middle, f"curve {curve.kind}"), *dots]


def _names(frame: Frame, curves: Sequence[Curve]) -> list[Markup]:
    """Each curve's name beside it, where it is farthest from every band and from the names before it."""
    column_C = np.arange(frame.columns)
    lower_C, upper_C = (
        [np.array([frame.y(end) for end in ends]) for ends in sides]
        for sides in ([c.lows for c in curves], [c.highs for c in curves])
    )
    placed: list[tuple[Point, float]] = []
    labels = []
    for index, curve in enumerate(curves):
        words = plain(curve.name, LABEL)
        half = min(4.8 * len(words), (frame.width - frame.left - frame.right) / 2)

        def room(spot: Point, half: float = half) -> float:
            """Least distance to a band or a name; negative where they touch or the plot ends."""
            x, y = spot
            along = (np.linspace(x - half, x + half, 15) - frame.left) / frame.step - 0.5
            gaps = [
                np.maximum(
                    np.interp(along, column_C, upper) - y - 3, y - 11 - np.interp(along, column_C, lower)
                ).min()
                for upper, lower in zip(upper_C, lower_C, strict=True)
            ]
            gaps += [abs(y - there[1]) - 15 for there, wide in placed if abs(x - there[0]) < half + wide]
            gaps += [y - 11 - frame.top, frame.height - frame.bottom - 4 - y]
            return float(min(*gaps, 6.0))

        spots = [
            (min(max(frame.x(column), frame.left + half), frame.width - frame.right - half), y)
            for column in range(frame.columns)
            for away in (8, 14, 22, 34)
            for y in (float(upper_C[index][column]) - away, float(lower_C[index][column]) + away + 9)
        ]
        spot = max(spots, key=room)
        placed.append((spot, half))
        labels.append(text(*spot, words, f"name {curve.kind}"))
    return labels


def phase_frame(stride: int, coordinate: str, **axis: Any) -> Frame:
    """A plot over the phases of a position; `axis` is what the frame's vertical axis has in place of 0 to 100 %."""
    return Frame(stride, f"phase of the {coordinate} (position mod {stride})", **axis)


def phase_curve(key: str, own: Curve, control: Curve | None, coordinate: str) -> Figure:
    """Accuracy by phase with 95 % bands, over the control folded at the same stride."""
    stride = len(own.values)
    frame = phase_frame(stride, coordinate)
    low, high = int(np.argmin(own.values)), int(np.argmax(own.values))
    caption = (
        f"Lowest at phase {low} ({percent(own.values[low])}), highest at phase {high} "
        f"({percent(own.values[high])}). Bands: 95 % intervals over contexts."
    )
    columns: tuple[str, ...] = ("Phase", "Accuracy", "Low", "High")
    rows = [(str(phase), *row) for phase, row in enumerate(own.rows())]
    if control is not None:
        caption += f" Dashed: the control, folded by the same {stride}."
        columns = (*columns, "Control", "Low", "High")
        rows = [(*row, *more) for row, more in zip(rows, control.rows(), strict=True)]
    parts = curves(frame, [own] if control is None else [own, control])
    title = f"Accuracy by phase: {plain(own.name)}"
    return figure(key, title, caption, frame.size, parts, columns, rows, "Accuracy by phase")


def residue_bars(key: str, curve: Curve, period: int | None, coordinate: str) -> Figure:
    """Accuracy by residue, with the period that was found drawn as bands behind it.

    A period that does not divide the number of residues cannot repeat within it; it is then named in
    the caption and not drawn.
    """
    residues = len(curve.values)
    frame = Frame(residues, f"position of the {coordinate} mod {residues}")
    repeats = period if period is not None and residues % period == 0 else None
    weakest = None if repeats is None else _weakest_phase(curve.values, repeats)
    parts = [*(_period_bands(frame, repeats) if repeats else []), frame.axes()]
    for residue, (value, low, high) in enumerate(zip(curve.values, curve.lows, curve.highs, strict=True)):
        weak = repeats is not None and residue % repeats == weakest
        parts.append(frame.bar(residue, value, f"bar {'weak' if weak else curve.kind}"))
        parts.append(frame.whisker(residue, low, high))
    if repeats:
        caption = f"Period {period}, found from the data; the outlined bars are its weakest phase, {weakest}."
    elif period is not None:
        caption = f"Period {period} was found; it does not divide {residues}, so it cannot repeat here."
    else:
        caption = "No period was found."
    heading = f"Accuracy by residue mod {residues}"
    rows = [(str(residue), *row) for residue, row in enumerate(curve.rows())]
    columns = ("Residue", "Accuracy", "Low", "High")
    return figure(key, f"{heading}: {plain(curve.name)}", caption, frame.size, parts, columns, rows, heading)


def _weakest_phase(values: Sequence[float], period: int) -> int:
    return int(np.argmin(np.reshape(np.asarray(values), (-1, period)).mean(axis=0)))


def _period_bands(frame: Frame, period: int) -> list[Markup]:
    """Every second repeat shaded, and the first one measured off above."""
    edges = [frame.x(start - 0.5) for start in range(0, frame.columns + 1, period)]
    floor = frame.height - frame.bottom
    shaded = [box(left, frame.top, right, floor, "repeat") for left, right in list(pairwise(edges))[1::2]]
    left, right, above = edges[0], edges[1], frame.top - 6
    bracket = path(
        [(left + 1, above + 4), (left + 1, above), (right - 1, above), (right - 1, above + 4)], "bracket"
    )
    return [*shaded, bracket, text(right + 5, above + 4, f"period {period}", "name note", "start")]


def context_dots(key: str, name: str, kind: Kind, shares: Floats, coordinate: str) -> Figure:
    """How the contexts spread at each phase: one dot per context, their middle half, their median.

    Args:
        key: an identifier that is unique in the page.
        name: whose contexts they are.
        kind: as what they are drawn.
        shares: accuracy of shape [contexts, phases].
        coordinate: the folded position, source or query.
    """
    contexts, stride = shares.shape
    frame = phase_frame(stride, coordinate)
    quartiles = np.quantile(shares, (0, 0.25, 0.5, 0.75, 1), axis=0)
    parts, half, radius = [frame.axes()], min(0.36 * frame.step, 22.0), 2.3 if stride <= 16 else 1.4
    for phase in range(stride):
        x, (lower, middle, upper) = frame.x(phase), (frame.y(q) for q in quartiles[1:4, phase])
        parts.append(box(x - half, upper, x + half, lower, f"half {kind}"))
        parts += [
            dot((x + half * offset, frame.y(share)), radius, f"dot context {kind}")
            for offset, share in zip(_spread(contexts), shares[:, phase], strict=True)
        ]
        parts.append(line((x - half, middle), (x + half, middle), "median"))
    widest = 100 * float((quartiles[3] - quartiles[1]).max())
    caption = (
        f"{contexts} contexts, one dot each; boxes hold the middle half (at most {widest:.0f} points wide), "
        "lines are medians. A phase effect moves the boxes; chance in single contexts only widens them."
    )
    title = f"Accuracy of each context by phase: {plain(name)}"
    rows = [(str(phase), *(percent(q) for q in quartiles[:, phase])) for phase in range(stride)]
    columns = ("Phase", "Lowest", "Quarter", "Median", "Three quarters", "Highest")
    return figure(key, title, caption, frame.size, parts, columns, rows, "Every context by phase")


def _spread(count: int) -> list[float]:
    """Offsets from −0.8 to 0.8 that spread neighbours apart without chance: the golden-ratio sequence."""
    return [((index * 0.6180339887) % 1 - 0.5) * 1.6 for index in range(count)]


def spread_forest(key: str, conditions: Sequence[tuple[str, bool, State, Finding]]) -> Figure:
    """Phase SD of every condition with its 95 % interval, from zero.

    Args:
        key: an identifier that is unique in the page.
        conditions: name, whether it is a control, what was judged, and the `phase_sd` finding.
    """
    width, row, top = 460.0, 44.0, 20.0
    left, right = 8.0, width - 142.0
    reach = max(f.high or f.value or 0.0 for *_, f in conditions)
    ticks = even_ticks(0, reach, least=0.05)
    floor = top + row * len(conditions)

    def x(share: float) -> float:
        return left + max(share, 0.0) / ticks[-1] * (right - left)

    parts = []
    for tick, label in zip(ticks, tick_words([100 * tick for tick in ticks]), strict=True):
        parts.append(line((x(tick), top - 8), (x(tick), floor), "grid" if tick else "axis"))
        parts.append(text(x(tick), floor + 17, label, "tick"))
    parts.append(text((left + right) / 2, floor + 38, "phase SD, points of accuracy", "axis-name"))
    for index, (condition, control, state, finding) in enumerate(conditions):
        y, kind = top + row * index + 26, "control" if control else "condition"
        parts.append(text(left + 8, y - 16, plain(condition, 36), "row", "start"))
        if finding.low is not None and finding.high is not None:
            ends = x(finding.low), x(finding.high)
            parts.append(line((ends[0], y), (ends[1], y), f"interval {kind}"))
            parts += [line((end, y - 8), (end, y + 8), f"interval {kind}") for end in ends]
        if finding.value is not None:
            parts.append(_marker((x(finding.value), y), state, kind))
        parts.append(text(width, y + 4.5, interval_words(finding, unit=""), "number", "end"))
    caption = (
        "How much accuracy varies with phase, sampling noise removed; 95 % intervals over contexts. Filled: "
        "phase-sensitive; hollow: flat; half filled: undecided or dependent on position. Grey: control."
    )
    rows = [
        (plain(a), "control" if control else "tested", state, interval_words(f))
        for a, control, state, f in conditions
    ]
    columns = ("Condition", "Role", "Verdict", "Phase SD")
    return figure(key, "Phase SD of every condition", caption, (width, floor + 46), parts, columns, rows)


def _marker(at: Point, state: State, kind: str) -> Markup:
    """A dot whose filling, not its colour, tells the state."""
    ring = dot(at, 5.5, f"ring {kind}{' full' if state == 'sensitive' else ''}")
    if state in ("sensitive", "flat"):
        return ring
    x, y = at
    half = element(
        "path", d=f"M{x:.2f} {y - 5.5:.2f}A5.5 5.5 0 0 0 {x:.2f} {y + 5.5:.2f}Z", class_=f"ring {kind} full"
    )
    return ring + half
