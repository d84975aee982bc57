"""The figures and tables of docs/theory.md, from `research.theory_model`: a minute on one core.

    python -m research.theory_figures [--out docs]

Writes theory_found.svg, theory_flow.svg and theory_phases.svg, and puts the tables between the marks of theory.md
where that file is there. The last line is one JSON object: the largest relative error of the growth rates against their
closed form, and of the task's own simulation against the formula, in standard errors.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from phasescope.files import write_atomic
from phasescope.reporting.svg import Point, dot, element, line, path, text
from research.theory_model import Flow, Task, best_even, best_gate, flow, grows_at, keeping, simulate

MARKS = "<!-- written by python -m research.theory_figures -->", "<!-- end -->"
STYLE = """
svg { font: 12.5px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; --page: #fdfdfb; --ink: #1b1e23;
  --soft: #59616b; --grid: #e6e6df; --a: #0067a8; --b: #b64500; --c: #00704f }
@media (prefers-color-scheme: dark) { svg { --page: #15181c; --ink: #e9e7e1; --soft: #a7adb5; --grid: #2a3036;
  --a: #62b6ec; --b: #f0a04b; --c: #3fc79a } }
.page { fill: var(--page) } .title { fill: var(--ink); font-weight: 600 } .tick { fill: var(--soft) }
.grid { stroke: var(--grid) } .axis { stroke: var(--soft) } .mark { stroke: var(--soft); stroke-dasharray: 2 3 }
.curve { fill: none; stroke-width: 2 } .a { stroke: var(--a) } .b { stroke: var(--b); stroke-dasharray: 6 3 }
.c { stroke: var(--c); stroke-dasharray: 2 3 } .dot.a { fill: var(--a) } .dot.b { fill: var(--b) }
.dot.c { fill: var(--c) } .name { font-weight: 600 } .name.a { fill: var(--a); stroke: none }
.name.b { fill: var(--b); stroke: none } .name.c { fill: var(--c); stroke: none }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot area with a linear or logarithmic axis across, and shares from 0 to `top` upwards."""

    left: float
    title: str
    across: tuple[float, float]
    label: str
    ticks: tuple[float, ...]
    top: float = 1.0
    log: bool = False
    width: float = 330.0
    height: float = 200.0
    above: float = 44.0

    def at(self, x: float, y: float) -> Point:
        """The place of a point."""
        low, high = self.across
        share = np.log(x / low) / np.log(high / low) if self.log else (x - low) / (high - low)
        return self.left + float(share) * self.width, self.above + (1 - y / self.top) * self.height

    def axes(self) -> Markup:
        """Grid lines, ticks, title and label."""
        parts = [text(self.left, self.above - 16, self.title, "title", "start")]
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            (x, y), value = self.at(self.across[0], share * self.top), share * self.top
            parts.append(line((x, y), (x + self.width, y), "grid" if share else "axis"))
            parts.append(text(x - 7, y + 4, f"{value:g}", "tick", "end"))
        for tick in self.ticks:
            parts.append(text(self.at(tick, 0)[0], self.above + self.height + 17, f"{tick:g}", "tick"))
        middle = self.left + self.width / 2
        parts.append(text(middle, self.above + self.height + 36, self.label, "tick"))
        return Markup("").join(parts)

    def curve(self, xs: Sequence[float], ys: Sequence[float], kind: str, dots: bool = False) -> Markup:
        """A line, with dots where they are few."""
        points = [self.at(x, y) for x, y in zip(xs, ys, strict=True)]
        drawn = path(points, f"curve {kind}")
        return drawn + Markup("").join(dot(point, 3.2, f"dot {kind}") for point in points if dots)

    def legend(self, names: dict[str, str], x: float = 14.0, y: float = 12.0) -> Markup:
        """Names inside the frame, each behind a piece of its curve."""
        parts = []
        for index, (kind, name) in enumerate(names.items()):
            left, height = self.left + x, self.above + y + 18 * index
            parts.append(path([(left, height), (left + 28, height)], f"curve {kind}"))
            parts.append(text(left + 35, height + 4, name, f"name {kind}", "start"))
        return Markup("").join(parts)


def page(title: str, words: str, *parts: Markup) -> str:
    """Two panels side by side as an SVG file of its own."""
    svg = element(
        "svg",
        element("title", title),
        element("desc", words),
        element("style", Markup(STYLE)),
        element("rect", width="100%", height="100%", class_="page"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox="0 0 820 300",
        role="img",
    )
    return f"{svg}\n"


KINDS = ("a", "b", "c")


def found_figure() -> str:
    """How likely a key is found at each cosine, and how many slots one head should keep."""
    u = np.linspace(0, 1, 101)
    left = Panel(52, "Found, by cosine u (d = 16, σ = 0.5)", (0, 1), "u", (0, 0.25, 0.5, 0.75, 1))
    counts = (2, 64, 1024)
    parts = [left.axes()]
    for kind, entries in zip(KINDS, counts, strict=True):
        parts.append(left.curve(u.tolist(), Task(entries=entries).found(u).tolist(), kind))
    even = Task().even
    parts.append(line(left.at(even, 0), left.at(even, 1), "mark"))
    parts.append(text(left.at(even, 0)[0] + 5, left.above + 12, "u₀, W = 8", "tick", "start"))
    parts.append(left.legend({k: f"N = {n}" for k, n in zip(KINDS, counts, strict=True)}, x=190, y=130))
    channels = np.geomspace(4, 1024, 65)
    right = Panel(
        462,
        "Slots that one head should keep (W = 8)",
        (4, 1024),
        "channels d",
        (4, 16, 64, 256, 1024),
        8,
        True,
    )
    parts.append(right.axes())
    for kind, entries in zip(KINDS, counts, strict=True):
        kept = [best_even(Task(entries=entries, channels=float(d)))[0] for d in channels]
        parts.append(right.curve(channels.tolist(), kept, kind))
    words = "Left: chance of finding a key by its cosine with the entry. Right: best number of slots to keep."
    return page("What one head can find", words, *parts)


def flow_figure(flows: dict[int, Flow]) -> str:
    """Gates of two heads from a nearly even start, and accuracy along the way for one, two and four heads."""
    two = flows[2]
    time = two.time_T[1:]
    ends = (1.0, float(time[-1]))
    shown = time >= 1
    left = Panel(52, "Gate weights of two heads, 8 slots each", ends, "time", (1, 10, 100, 1000), 0.3, True)
    parts = [left.axes()]
    for head, kind in ((0, "a"), (1, "b")):
        for slot in range(two.gate_THW.shape[2]):
            weights = two.gate_THW[1:, head, slot][shown]
            parts.append(left.curve(time[shown].tolist(), weights.tolist(), kind))
    parts.append(left.legend({"a": "head 0", "b": "head 1"}))
    right = Panel(462, "Mean accuracy along the flow", ends, "time", (1, 10, 100, 1000), 1.0, True)
    parts.append(right.axes())
    for kind, (_, run) in zip(KINDS, flows.items(), strict=True):
        parts.append(right.curve(run.time_T[1:][shown].tolist(), run.value_T[1:][shown].tolist(), kind))
    names = {k: f"{heads} head{'s' if heads > 1 else ''}" for k, heads in zip(KINDS, flows, strict=True)}
    parts.append(right.legend(names, y=150))
    return page(
        "Gradient flow of gates", "Two heads part the slots among themselves; one stays even.", *parts
    )


def phases_figure() -> str:
    """Accuracy by slot where one head has to drop some: hard matches."""
    parts = []
    tasks = {"even gate": None, "one head": 1, "two heads": 2}
    for left, (entries, channels) in ((52.0, (1024, 64.0)), (462.0, (64, 64.0))):
        panel = Panel(
            left, f"Accuracy by slot (N = {entries}, d = {channels:g})", (0, 7), "slot", tuple(range(8))
        )
        parts.append(panel.axes())
        for kind, heads in zip(KINDS, tasks.values(), strict=True):
            task = Task(entries=entries, channels=channels, heads=heads or 1)
            gate = np.full((1, 8), 1 / 8)
            if heads:
                gate = best_gate(task, rng=np.random.default_rng(0), starts=3, end=5e3)[0]
                gate = gate[:, np.argsort(-gate[0], kind="stable")]  # slots are alike, so their order is free
            parts.append(panel.curve(list(range(8)), task.accuracy_W(gate).tolist(), kind, dots=True))
        parts.append(panel.legend(dict(zip(KINDS, tasks, strict=True)), x=14, y=12 if entries > 64 else 150))
    words = "Where matches are hard one head drops half the slots; two heads share them."
    return page("Phase curves of the idealised task", words, *parts)


def tables() -> Iterator[str]:
    """Markdown: slots to keep by width, noise and entries; growth rates with their check; heads."""
    yield "Slots that one head should keep evenly, of W (d = 16):\n"
    yield "| W | σ | N = 8 | N = 64 | N = 1024 |\n|---|---|---|---|---|"
    for width in (4, 8, 12):
        for noise in (0.0, 0.5, 1.0):
            kept = [best_even(Task(width=width, noise=noise, entries=n))[0] for n in (8, 64, 1024)]
            yield f"| {width} | {noise:g} | " + " | ".join(map(str, kept)) + " |"
    yield "\nGrowth rates from the even gate, times 100 (W = 8, σ = 0.5), in closed form and on the flow's gradient:\n"
    yield "| N | d | heads | alike | measured | apart | measured | the even gate is |"
    yield "|---|---|---|---|---|---|---|---|"
    for task in checked():
        rates = task.growth()
        apart = ("–", "–")
        if task.heads > 1:
            apart = (f"{100 * rates['apart']:.3f}", f"{100 * grows_at(task, alike=False):.3f}")
        yield (
            f"| {task.entries} | {task.channels:g} | {task.heads} | {100 * rates['alike']:.3f} | "
            f"{100 * grows_at(task):.3f} | {apart[0]} | {apart[1]} | {'stable' if task.stable else 'unstable'} |"
        )
    yield "\nMean accuracy, and slots that each head ends up with (weight above 1/W), W = 8, σ = 0.5:\n"
    yield "| N | d | heads | even gates | best found | slots per head | slots of no head |"
    yield "|---|---|---|---|---|---|---|"
    for entries, channels in ((64, 64.0), (1024, 64.0), (1024, 16.0)):
        for heads in (1, 2, 4):
            task = Task(entries=entries, channels=channels, heads=heads)
            gate, value = best_gate(task, rng=np.random.default_rng(0), starts=3, end=5e3)
            even = task.value(np.full((heads, 8), 1 / 8))
            kept = gate > 1 / 8 + 1e-3
            each = ", ".join(map(str, kept.sum(axis=1))) if kept.any() else "all, evenly"
            none = int((~kept.any(axis=0)).sum()) if kept.any() else 0
            yield f"| {entries} | {channels:g} | {heads} | {even:.3f} | {value:.3f} | {each} | {none} |"


def checked() -> list[Task]:
    """Tasks whose growth rates are checked."""
    shapes = ((2, 16.0, 1), (64, 16.0, 1), (64, 64.0, 1), (1024, 64.0, 1), (64, 64.0, 2), (64, 64.0, 4))
    return [Task(entries=entries, channels=channels, heads=heads) for entries, channels, heads in shapes]


def worst_rate_error() -> float:
    """Largest relative error of a growth rate against its closed form."""
    errors = []
    for task in checked():
        rates = task.growth()
        errors.append(abs(grows_at(task) / rates["alike"] - 1))
        if task.heads > 1:
            errors.append(abs(grows_at(task, alike=False) / rates["apart"] - 1))
    return max(errors)


def worst_draw(trials: int = 2000) -> float:
    """Largest distance of the simulated task from the formula, in standard errors."""
    task = Task(width=4, entries=16, channels=48)
    gate = np.array([[0.5, 0.3, 0.15, 0.05]])
    expected = task.accuracy_W(gate)
    drawn = simulate(task, gate, rng=np.random.default_rng(0), trials=trials)
    return float((np.abs(drawn - expected) / np.sqrt(expected * (1 - expected) / trials)).max())


def main() -> None:
    """Write figures and tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs"))
    out = parser.parse_args().out
    flows = {
        heads: flow(
            Task(entries=64, channels=64.0, heads=heads), rng=np.random.default_rng(0), end=3000.0, steps=160
        )
        for heads in (1, 2, 4)
    }
    write_atomic(out / "theory_found.svg", found_figure())
    write_atomic(out / "theory_flow.svg", flow_figure(flows))
    write_atomic(out / "theory_phases.svg", phases_figure())
    written = "\n".join(tables())
    print(written)
    text_file = out / "theory.md"
    if text_file.exists():
        before, _, rest = text_file.read_text(encoding="utf-8").partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        if rest:
            write_atomic(text_file, f"{before}{MARKS[0]}\n\n{written}\n\n{MARKS[1]}{after}")
    flat = keeping(8, 8)
    result = {
        "growth_error": float(f"{worst_rate_error():.3g}"),
        "simulation_standard_errors": round(worst_draw(), 2),
        "even_accuracy": round(Task().value(flat[None]), 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
