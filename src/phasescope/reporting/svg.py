"""SVG by hand: elements that escape what they are given, and a plot frame with its axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from .words import tick_words

Point = tuple[float, float]


def _value(value: object) -> str:
    """A number with at most two decimals, so that the same drawing has the same bytes; else text."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def element(name: str, *children: str, **attributes: object) -> Markup:
    """One SVG element; every attribute and every child that is not markup already is escaped.

    `class_` becomes `class`, and underscores in other names become hyphens.
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(str(escape(child)) for child in children)
    return Markup(f"<{name}{pairs}>{inside}</{name}>")


def text(x: float, y: float, words: str, class_: str = "label", anchor: str = "middle") -> Markup:
    """A line of text; `anchor` is start, middle or end."""
    return element("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def line(start: Point, end: Point, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=class_)


def dot(at: Point, radius: float, class_: str) -> Markup:
    """A filled circle."""
    return element("circle", cx=at[0], cy=at[1], r=radius, class_=class_)


def box(left: float, top: float, right: float, bottom: float, class_: str) -> Markup:
    """A filled rectangle between two corners."""
    return element("rect", x=left, y=top, width=right - left, height=bottom - top, class_=class_)


def path(points: Iterable[Point], class_: str, closed: bool = False) -> Markup:
    """A line through points; closed, it is an area."""
    steps = "L".join(f"{_value(float(x))} {_value(float(y))}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", class_=class_)


def drawing(key: str, title: str, description: str, size: tuple[float, float], *parts: str) -> Markup:
    """The svg element, named and described for readers who do not see it.

    Args:
        key: an identifier that is unique in the page.
        title: what the figure is.
        description: what it shows, in words with numbers.
        size: width and height of the view box.
        parts: the drawing.
    """
    named = element("title", title, id=f"{key}-title") + element("desc", description, id=f"{key}-desc")
    return element(
        "svg",
        named,
        *parts,
        viewBox=f"0 0 {_value(float(size[0]))} {_value(float(size[1]))}",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """A plot area whose horizontal axis counts `columns` phases; the vertical one is 0 to 100 % by default.

    Attributes:
        columns: how many phases or residues stand side by side.
        label: what the horizontal axis counts.
        names: what each column is called; by default its number from 0.
        ticks: values in rising order that have a grid line; the first is the floor and the last the top.
        factor, unit: what a tick is multiplied by and followed by where it is written.
        width, height: size of the view box.
    """

    columns: int
    label: str
    names: Sequence[str] = ()
    ticks: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0)
    factor: float = 100.0
    unit: str = " %"
    width: float = 460.0
    height: float = 270.0
    left: float = 54.0
    right: float = 14.0
    top: float = 22.0
    bottom: float = 46.0

    @property
    def step(self) -> float:
        """Width of one column."""
        return (self.width - self.left - self.right) / self.columns

    def x(self, column: float) -> float:
        """The middle of a column."""
        return self.left + (column + 0.5) * self.step

    def y(self, value: float) -> float:
        """The height of a value; what lies beyond the first or last tick is drawn at the edge."""
        floor, low, high = self.height - self.bottom, self.ticks[0], self.ticks[-1]
        return floor - (min(max(value, low), high) - low) / (high - low) * (floor - self.top)

    def points(self, values: Sequence[float]) -> list[Point]:
        """One point per column."""
        return [(self.x(column), self.y(value)) for column, value in enumerate(values)]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the view box."""
        return self.width, self.height

    def bar(self, column: float, value: float, class_: str) -> Markup:
        """A bar from zero up to a value."""
        x, half = self.x(column), 0.34 * self.step
        return box(x - half, self.y(value), x + half, self.y(0), class_)

    def whisker(self, column: float, low: float, high: float) -> Markup:
        """An interval as an upright line."""
        return line((self.x(column), self.y(low)), (self.x(column), self.y(high)), "whisker")

    def level(self, value: float, class_: str) -> Markup:
        """A line over the whole width."""
        return line((self.left, self.y(value)), (self.width - self.right, self.y(value)), class_)

    def axes(self) -> Markup:
        """Grid lines at the ticks, their labels from the floor up, and the columns' numbers."""
        parts = []
        labels = tick_words([tick * self.factor for tick in self.ticks])
        for tick, label in zip(self.ticks, labels, strict=True):
            parts.append(self.level(tick, "grid" if tick else "axis"))
            parts.append(text(self.left - 7, self.y(tick) + 4.5, label + self.unit, "tick", "end"))
        for column in range(0, self.columns, spacing(self.columns)):
            words = self.names[column] if self.names else str(column)
            parts.append(text(self.x(column), self.height - self.bottom + 18, words, "tick"))
        middle = (self.left + self.width - self.right) / 2
        parts.append(text(middle, self.height - 7, self.label, "axis-name"))
        return Markup("").join(parts)


def even_ticks(low: float, high: float, *, least: float = 0.01, whole: bool = False) -> tuple[float, ...]:
    """Two to seven round numbers at equal distances, from `low` or below to `high` or above.

    Args:
        low: the least value that is drawn.
        high: the largest one.
        least: what the axis spans at least.
        whole: only whole numbers, for an axis that counts.
    """
    high = max(high, low + least)
    span = high - low
    steps = (
        factor * 10.0**power
        for power in range(math.floor(math.log10(span)) - 1, 308)
        for factor in (1.0, 2.0, 2.5, 5.0)
    )
    step = next(s for s in steps if span <= 5 * s * (1 + 1e-9) and not (whole and s % 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(step * n, 12) for n in range(first, last + 1))


def spacing(columns: int, most: int = 12) -> int:
    """Every how many columns a number stands, so that there are at most so many: a power of two."""
    every = 1
    while columns > most * every:
        every *= 2
    return every
