"""The plot of `research.linear_cost`: time and peak memory against tokens, an SVG file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from phasescope.reporting.svg import Point, dot, element, line, path, text

from .linear_cost_report import MIB, NAMES, Results, series


@dataclass(frozen=True, slots=True)
class LogFrame:
    """A plot area with powers of two across and powers of ten upwards.

    Attributes:
        left, top: its corner in the drawing.
        tokens, values: smallest and largest of each axis.
        label: what is drawn upwards.
    """

    left: float
    top: float
    tokens: tuple[float, float]
    values: tuple[float, float]
    label: str
    width: float = 360.0
    height: float = 200.0

    @classmethod
    def around(cls, left: float, top: float, label: str, curves: list[dict[int, float]]) -> LogFrame:
        """A frame that holds the curves."""
        tokens = [size for curve in curves for size in curve]
        values = [value for curve in curves for value in curve.values()]
        ends = 10.0 ** floor(log10(min(values))), 10.0 ** ceil(log10(max(values)))
        return cls(left, top, (min(tokens), max(tokens)), ends, label)

    def at(self, tokens: float, value: float) -> Point:
        """The place of a measurement."""
        (first, last), (low, high) = self.tokens, self.values
        across = log10(tokens / first) / (log10(last / first) or 1)
        upwards = log10(value / low) / (log10(high / low) or 1)
        return self.left + across * self.width, self.top + (1 - upwards) * self.height

    def axes(self) -> Markup:
        """Grid lines at powers of ten, labels at powers of two."""
        parts = [text(self.left, self.top - 12, self.label, "title", "start")]
        (first, last), (low, high) = self.tokens, self.values
        for power in range(round(log10(low)), round(log10(high)) + 1):
            start, end = self.at(first, 10.0**power), self.at(last, 10.0**power)
            parts.append(
                line(start, (self.left + self.width, end[1]), "grid" if power > log10(low) else "axis")
            )
            parts.append(text(self.left - 7, start[1] + 4, f"{10.0**power:g}", "tick", "end"))
        size = int(first)
        while size <= last:
            x = self.at(size, low)[0]
            parts.append(text(x, self.top + self.height + 17, f"{size // 1024}K", "tick"))
            size *= 2
        parts.append(text(self.left + self.width / 2, self.top + self.height + 35, "tokens", "tick"))
        return Markup("").join(parts)

    def curve(self, by_tokens: dict[int, float], kind: str) -> Markup:
        """A line with a dot per measurement."""
        points = [self.at(tokens, value) for tokens, value in by_tokens.items()]
        if not points:
            return Markup("")
        return path(points, f"curve {kind}") + Markup("").join(dot(p, 3.2, f"dot {kind}") for p in points)

    def legend(self, names: dict[str, str]) -> Markup:
        """Names above the frame, each behind a piece of its curve."""
        parts, y = [], self.top - 16
        for kind, back in (("control", 208.0), ("condition", 78.0)):
            x = self.left + self.width - back
            parts += [path([(x, y), (x + 30, y)], f"curve {kind}"), dot((x + 15, y), 3.2, f"dot {kind}")]
            parts.append(text(x + 37, y + 4, names[kind], f"name {kind}", "start"))
        return Markup("").join(parts)


STYLE = """
svg { font: 12.5px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; --page: #fdfdfb; --ink: #1b1e23;
  --soft: #59616b; --grid: #e6e6df; --condition: #0067a8; --control: #6b7078 }
@media (prefers-color-scheme: dark) { svg { --page: #15181c; --ink: #e9e7e1; --soft: #a7adb5; --grid: #2a3036;
  --condition: #62b6ec; --control: #a3aab2 } }
.page { fill: var(--page) } .title { fill: var(--ink); font-weight: 600 } .tick { fill: var(--soft) }
.grid { stroke: var(--grid) } .axis { stroke: var(--soft) }
.curve { fill: none; stroke-width: 2 } .curve.condition { stroke: var(--condition) }
.curve.control { stroke: var(--control); stroke-dasharray: 5 4 }
.dot.condition { fill: var(--condition) } .dot.control { fill: var(--page); stroke: var(--control); stroke-width: 1.6 }
.name { font-weight: 600 } .name.condition { fill: var(--condition) } .name.control { fill: var(--control) }
"""
PANELS = (
    ("prefill", "Prefill, s", "seconds", 1.0),
    ("prefill", "Prefill, MiB", "bytes", MIB),
    ("csa", "CSA layer, s", "seconds", 1.0),
    ("csa", "CSA layer, MiB", "bytes", MIB),
)
SIDES = {"prefill": ("full", "w8s8"), "csa": ("transformers", "ours")}


def draw(results: Results) -> str:
    """Four log-log panels against tokens: time and memory of the model and of one CSA layer, each with its rival."""
    parts = [element("rect", width="100%", height="100%", class_="page")]
    for index, (kind, label, fact, unit) in enumerate(PANELS):
        curves = [
            {tokens: value / unit for tokens, value in series(results, kind, variant, fact).items()}
            for variant in SIDES[kind]
        ]
        if not any(curves):
            continue
        left, top = 56.0 + 440 * (index % 2), 40.0 + 300 * (index // 2)
        frame = LogFrame.around(left, top, label, curves)
        parts.append(frame.axes())
        parts += [
            frame.curve(curve, role) for curve, role in zip(curves, ("control", "condition"), strict=True)
        ]
        rival, own = SIDES[kind]
        parts.append(frame.legend({"condition": NAMES[own], "control": NAMES[rival]}))
    words = "Solid: ours. Dashed: full attention above, the layer of transformers below. Both axes are logarithmic."
    svg = element(
        "svg",
        element("title", "Time and peak memory against tokens"),
        element("desc", words),
        element("style", Markup(STYLE)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox="0 0 880 590",
        role="img",
    )
    return f"{svg}\n"
