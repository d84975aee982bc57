"""The figures of an explanation: heads against phases, gates, the account, and rolled gates, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..records import Finding
from ..statistics.verdict import number, percent, plain, points
from .figures import Curve, Figure, phase_curve
from .svg import Frame, box, dot, drawing, element, line, path, text

CELLS = 32
"""Phases up to which cells of a map hold their numbers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a map: its name, its values, and which of them are framed."""

    name: str
    values: Sequence[float]
    framed: Sequence[bool] = ()


def heat_map(
    key: str, title: str, caption: str, rows: Sequence[Row], columns: str, *, signed: bool, scale: float
) -> Figure:
    """Rows of cells, one per phase, that are the darker the larger their value is.

    Args:
        key: an identifier that is unique in the page.
        title: of the figure.
        caption: of the figure.
        rows: with values in shares.
        columns: what the columns count.
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
            parts.append(_cell(x, y, step, height, f"cell {kind}", 0.06 + 0.8 * share))
            if count <= CELLS / 2:
                parts.append(text(x + step / 2, y + height / 2 + 4, number(100 * value, 0), "cell-number"))
    for index, row in enumerate(rows):
        for column, framed in enumerate(row.framed):
            if framed:
                x, y = left + step * column, top + height * index
                parts.append(box(x + 1, y + 1, x + step - 1, y + height - 1, "frame"))
    every = 1
    while count > 16 * every:
        every *= 2
    for column in range(0, count, every):
        parts.append(text(left + step * (column + 0.5), floor + 17, str(column), "tick"))
    parts.append(text((left + width) / 2, floor + 38, columns, "axis-name"))
    table = [(plain(row.name), *(number(100 * value) for value in row.values)) for row in rows]
    svg = drawing(key, title, caption, (width, floor + 46), *parts)
    return Figure(svg, title, caption, ("", *(str(column) for column in range(count))), table)


def _cell(x: float, y: float, width: float, height: float, class_: str, opacity: float) -> Markup:
    return element(
        "rect", x=x, y=y, width=width, height=height, class_=class_, fill_opacity=round(opacity, 2)
    )


def loss_curve(
    key: str, loss: dict[str, object], condition: str, coordinate: str, contexts: tuple[int, int]
) -> Figure:
    """Accuracy lost at each phase without one unit, with its band."""
    values, lows, highs = (list(map(_number, _list(loss[name]))) for name in ("phase", "low", "high"))
    rates = [
        Finding(
            condition=condition,
            name="loss_at_phase",
            value=value,
            low=low,
            high=high,
            method="",
            n_blocks=contexts[0],
            n_clusters=contexts[1],
            residue=phase,
        )
        for phase, (value, low, high) in enumerate(zip(values, lows, highs, strict=True))
    ]
    drawn = phase_curve(key, Curve(str(loss["unit"]), "condition", rates), None, coordinate)
    most, least = max(values), min(values)
    caption = (
        f"Points of accuracy lost without {plain(str(loss['unit']))}: most at phase {values.index(most)} "
        f"({points(most)}), least at phase {values.index(least)} ({points(least)}). Band: 95 % over all heads together."
    )
    columns = ("Phase", "Lost", "Low", "High")
    return Figure(drawn.svg, f"Lost without {plain(str(loss['unit']), 40)}", caption, columns, drawn.rows)


def gate_bars(key: str, gate: dict[str, object]) -> Figure:
    """Mean gate weight of each slot, with the prior of the learned bias as a dashed line."""
    mean, low, high = (list(map(_number, _list(gate[name]))) for name in ("mean", "low", "high"))
    prior = None if gate["prior"] is None else list(map(_number, _list(gate["prior"])))
    frame = Frame(len(mean), "slot of the window")
    top = next(end for end in (0.25, 0.5, 1.0) if max([*mean, *high, *(prior or [0])]) <= end or end == 1.0)
    parts = [_scaled_axes(frame, top)]
    for slot, value in enumerate(mean):
        x, half = frame.x(slot), 0.34 * frame.step
        parts.append(box(x - half, frame.y(value / top), x + half, frame.y(0), "bar condition"))
        parts.append(line((x, frame.y(low[slot] / top)), (x, frame.y(high[slot] / top)), "whisker"))
    even = frame.y(1 / len(mean) / top)
    parts.append(line((frame.left, even), (frame.width - frame.right, even), "even"))
    if prior is not None:
        spots = frame.points([value / top for value in prior])
        parts += [path(spots, "prior"), *(dot(spot, 3.2, "dot prior") for spot in spots if len(prior) <= 32)]
    name = f"L{gate['layer']}.H{gate['head']}"
    recurrence = gate["recurrence"]
    recurs = (
        "does not vary"
        if recurrence is None
        else f"varies by slot, on every input alike, for {percent(_number(recurrence))} of its variance"
    )
    caption = (
        f"{name}: the weight {recurs}, and by content for the rest; entropy {percent(_number(gate['entropy']))} of the "
        "uniform gate's. Dotted: uniform."
        + ("" if prior is None else " Dashed: the softmax of the learned bias alone.")
    )
    columns = ("Slot", "Mean weight", "Low", "High", *(("Prior",) if prior else ()))
    rows = [
        (
            str(slot),
            *(percent(x) for x in (mean[slot], low[slot], high[slot], *([prior[slot]] if prior else ()))),
        )
        for slot in range(len(mean))
    ]
    title = f"Gate of {name}"
    svg = drawing(key, title, caption, (frame.width, frame.height), *parts)
    return Figure(svg, title, caption, columns, rows)


def _scaled_axes(frame: Frame, top: float) -> Markup:
    """Axes whose highest line is `top`, in percent."""
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        height = frame.y(share)
        parts.append(
            line((frame.left, height), (frame.width - frame.right, height), "grid" if share else "axis")
        )
        parts.append(text(frame.left - 7, height + 4.5, f"{number(100 * share * top, 0)} %", "tick", "end"))
    every = 1
    while frame.columns > 12 * every:
        every *= 2
    for column in range(0, frame.columns, every):
        parts.append(text(frame.x(column), frame.height - frame.bottom + 18, str(column), "tick"))
    parts.append(text((frame.left + frame.width) / 2, frame.height - 7, frame.label, "axis-name"))
    return Markup("").join(parts)


def account_curve(key: str, account: dict[str, object], curve: dict[str, object], coordinate: str) -> Figure:
    """What the gates keep of each phase, under the measured accuracy."""
    kept = list(map(_number, _list(account["phases"])))
    rates, lows, highs = (list(map(_number, _list(curve[name]))) for name in ("rate", "low", "high"))
    frame = Frame(len(kept), f"phase of the {coordinate} (position mod {len(kept)})")
    weakest, measured = (
        int(_number(account["weakest"])),
        [int(_number(p)) for p in _list(account["measured_weakest"])],
    )
    parts = [frame.axes()]
    for phase, value in enumerate(kept):
        x, half = frame.x(phase), 0.34 * frame.step
        kind = "weak" if phase == weakest else "control"
        parts.append(box(x - half, frame.y(value), x + half, frame.y(0), f"bar {kind}"))
    band = path([*frame.points(highs), *reversed(frame.points(lows))], "band condition", closed=True)
    parts += [band, path(frame.points(rates), "curve condition")]
    parts += [dot(spot, 3.4, "dot condition") for spot in frame.points(rates) if len(kept) <= 32]
    caption = (
        f"Bars: the coverage account, from gates alone; it names phase {weakest}. Line: measured accuracy; weakest are "
        f"phases {', '.join(map(str, measured))}. {'A hit' if account['hit'] else 'A miss'}; a phase drawn at random "
        f"would hit with {percent(_number(account['chance']))}."
    )
    rows = [
        (str(phase), percent(value), percent(rate))
        for phase, (value, rate) in enumerate(zip(kept, rates, strict=True))
    ]
    title = "What the gates keep, and what is recalled"
    svg = drawing(key, title, caption, (frame.width, frame.height), *parts)
    return Figure(svg, title, caption, ("Phase", "Account", "Accuracy"), rows)


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
