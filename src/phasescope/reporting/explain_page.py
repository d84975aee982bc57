"""The page of an explanation: sections with figures, in the look of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..explaining.coverage_score import KEPT
from ..explaining.result import ExplanationResult, HeadGate, Interval, Loss, Roll, read_explanation
from ..files import write_atomic
from ..statistics.intervals import SIGNIFICANT
from ..statistics.verdict import excludes_zero
from .explain_figures import Row, gate_bars, heat_map, loss_curve, score_curve
from .figure import Figure
from .pages import filled
from .words import listed, nats, number, p_words, percent, plain, points

HEADLINES = ("contrast", "heads", "score", "boundary")
"""Sections whose sentence may stand on top, the first that has one."""
MOST_FIGURES = 12
"""Single heads that are drawn; tables hold all of them."""


def explain_page(path: Path) -> Path:
    """Write explain.html beside an explain.json: one file that needs nothing beside it.

    Returns:
        its path.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: if it is not what `explain` writes.
    """
    page = path.with_name("explain.html")
    write_atomic(page, render(read_explanation(path)))
    return page


def explain_summary(path: Path) -> str:
    """What a terminal prints: one sentence per section."""
    return "\n".join(sentences(read_explanation(path)).values()).replace("\N{NO-BREAK SPACE}", " ")


def render(found: ExplanationResult) -> str:
    """The whole page as one HTML text that needs nothing beside it."""
    by_section, rolls = sentences(found), found.boundary.rolls
    return filled(
        "explain.html.j2",
        title=plain(f"{found.run}, {found.condition}"),
        sentences=by_section,
        headline=next(
            (by_section[name] for name in HEADLINES if name in by_section), "Nothing could be explained."
        ),
        found=found,
        heads=_heads(found),
        head_rows=[_loss_row(loss, points) for loss in found.losses.get("accuracy", ())],
        logprob_rows=[_loss_row(loss, nats) for loss in found.losses.get("logprob", ())],
        gates=[gate_bars(f"gate-{index}", gate) for index, gate in enumerate(found.gates[:MOST_FIGURES])],
        gate_rows=[_gate_row(gate) for gate in found.gates],
        score=_score(found),
        boundary=_boundary(found),
        rolls=_rolls(found) if rolls else None,
        roll_rows=[_roll_row(roll) for roll in rolls],
        definitions=sorted({finding.name: finding.method for finding in found.findings}.items()),
    )


def sentences(found: ExplanationResult) -> dict[str, str]:
    """What was found, in one plain sentence per section."""
    by_section = {
        "heads": _head_words(found),
        "contrast": _contrast_words(found),
        "gates": _gate_words(found),
        "score": _score_words(found),
        "boundary": _boundary_words(found),
    }
    return {section: words for section, words in by_section.items() if words}


def _head_words(found: ExplanationResult) -> str:
    losses = found.losses.get("accuracy", ())
    if not losses:
        return ""
    largest = max(losses, key=lambda loss: loss.mean.value or 0.0)
    uneven = [loss.unit for loss in losses if loss.p_holm < SIGNIFICANT and loss.index]
    where = (
        f"the contribution of {listed(uneven)} falls unevenly over phases"
        if uneven
        else "no contribution falls unevenly over phases beyond chance"
    )
    return (
        f"Taking away {largest.unit} costs most, {points(largest.mean.value or 0.0)} points of accuracy on average; "
        f"{where} ({len(losses)} units, p < {SIGNIFICANT} after correction)."
    )


def _contrast_words(found: ExplanationResult) -> str:
    """The contrast of gates' preferred phases, or that there is none, with the power."""
    if not found.contrasts:
        return ""
    name, best = max(found.contrasts.items(), key=lambda one: one[1].estimate.value or 0.0)
    value, phases = best.estimate, ", ".join(map(str, best.phases))
    size = points(value.value or 0.0)
    if value.low is None:
        return f"{name} costs {size} points more at the phases that its gate prefers."
    if excludes_zero(value.low):
        return (
            f"Without {name}, {size} points{_ends(value)} more are lost at the phases that its gate prefers ({phases}) "
            "than at the others."
        )
    return (
        f"No head is seen to serve the phases that its gate prefers: without {name}, {size} points{_ends(value)} more "
        f"are lost at the phases that it prefers ({phases}) than at the others; a difference of "
        f"{points(best.smallest or 0.0)} would have been found with 80 % power."
    )


def _gate_words(found: ExplanationResult) -> str:
    gates = [(gate.recurrence, gate) for gate in found.gates if gate.recurrence is not None]
    if not gates:
        return ""
    share, steadiest = max(gates, key=lambda one: one[0])
    kind = "recurs on every input" if share >= 0.5 else "follows content more than it recurs"
    return (
        f"The gate with the steadiest preference, {steadiest.name}, {kind}: {percent(share)} of its variance is "
        "between slots."
    )


def _score_words(found: ExplanationResult) -> str:
    score = found.coverage_score
    if score is None:
        return ""
    unkept = listed([str(phase) for phase in score.unkept]) if score.unkept else ""
    none = f"no head keeps phase {unkept}" if unkept else "every phase is kept by some head"
    hit = "among" if score.hit else "not among"
    flat = " (the curve is flat within its error)" if found.curve.flat else ""
    measured = " and ".join(map(str, score.measured_weakest))
    return (
        f"By the gates alone, {none}, and phase {score.weakest} is kept least; it is {hit} the two measured weakest, "
        f"{measured}{flat} (chance {percent(score.chance)})."
    )


def _boundary_words(found: ExplanationResult) -> str:
    closed = found.boundary.contrasts.get("closed")
    if closed is None:
        return ""
    phases, lost = listed([str(phase) for phase in closed.phases]), closed.estimate.value or 0.0
    differs = (
        f"Where the key's window has closed when its value is read (phases {phases}), accuracy differs by "
        f"{points(lost)} points{_ends(closed.estimate)} from the other phases"
    )
    won = [(roll.won, roll.slots) for roll in found.boundary.rolls if roll.won is not None]
    if not won:
        return f"{differs}."
    best, slots = max(won, key=lambda one: one[0].value or 0.0)
    back = lost < 0 and (best.value or 0.0) >= -lost / 2
    verb = "wins half of it back or more" if back else "does not win it back"
    changed = f"{points(best.value or 0.0)} points{_ends(best)}"
    return f"{differs}; rolling the gates {verb}: at best it changes them by {changed}, by {slots} slots."


def _ends(estimate: Interval) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" ({points(estimate.low)} to {points(estimate.high)})"


def _below(found: ExplanationResult) -> str:
    return f"phase of the {found.coordinate} (position mod {found.stride})"


def _heads(found: ExplanationResult) -> list[Figure]:
    """The map of heads against phases, and a curve for each head that costs something."""
    losses = found.losses.get("accuracy", ())
    if not losses:
        return []
    preferred = {name: contrast.phases for name, contrast in found.contrasts.items()}
    rows = [
        Row(loss.unit, loss.phase, [phase in preferred.get(loss.unit, ()) for phase in range(found.stride)])
        for loss in losses
    ]
    scale = max(0.05, *(abs(value) for row in rows for value in row.values))
    framed = " Framed: the phases that the head's gate prefers." if preferred else ""
    caption = (
        f"Points of accuracy lost at each phase without each unit; a full cell is {points(scale)}.{framed}"
    )
    title = "Accuracy lost, heads × phases"
    drawn = heat_map("map", title, caption, rows, _below(found), signed=True, scale=scale)
    costly = [loss for loss in losses if loss.mean_p_holm < SIGNIFICANT][:MOST_FIGURES]
    return [drawn, *(loss_curve(f"loss-{n}", loss, found.coordinate) for n, loss in enumerate(costly))]


def _score(found: ExplanationResult) -> list[Figure]:
    score = found.coverage_score
    if score is None:
        return []
    last = max((gate.layer for gate in found.gates), default=0)
    names = [gate.name for gate in found.gates if gate.layer == last]
    rows = [Row(*one) for one in zip(names, score.heads, score.kept, strict=False)]
    caption = (
        f"Link × keep of each head of the last layer, in percent. Framed: kept, at least {100 * KEPT:.0f} % of the "
        "largest."
    )
    heads = heat_map("kept", "What each head keeps", caption, rows, _below(found), signed=False, scale=1.0)
    return [score_curve("score-curve", score, found), heads]


def _boundary(found: ExplanationResult) -> list[tuple[str, str, str]]:
    """Rows of the boundary's table: which phases, and how they differ."""
    rows = []
    for words, phases, contrast in (
        ("No window holds key and value", found.boundary.parted, found.boundary.contrasts.get("parted")),
        (
            "The key's window is closed when its value is read",
            found.boundary.closed,
            found.boundary.contrasts.get("closed"),
        ),
    ):
        differs = (
            "–" if contrast is None else points(contrast.estimate.value or 0.0) + _ends(contrast.estimate)
        )
        rows.append((words, ", ".join(map(str, phases)) or "none", differs))
    return rows


def _rolls(found: ExplanationResult) -> Figure:
    framed = [phase in found.boundary.closed for phase in range(found.stride)]
    curves = [("0", found.curve.rate), *((str(roll.slots), roll.curve) for roll in found.boundary.rolls)]
    rows = [Row(name, curve, framed) for name, curve in curves]
    scale = max(0.05, *(value for row in rows for value in row.values))
    caption = (
        f"Rows: by how many slots the bias of every gate was rolled. A full cell is {percent(scale)}. Framed: boundary "
        "phases."
    )
    title = "Accuracy under rolled gates"
    return heat_map("rolls", title, caption, rows, _below(found), signed=False, scale=scale)


def _or_dash(value: float | None, format: Callable[[float], str]) -> str:
    return "–" if value is None else format(value)


def _loss_row(loss: Loss, format: Callable[[float], str]) -> tuple[str, ...]:
    ends = [_or_dash(end, format) for end in (loss.mean.low, loss.mean.high)]
    return (
        plain(loss.unit, 80),
        _or_dash(loss.mean.value, format),
        "–" if loss.mean.low is None else " to ".join(ends),
        p_words(loss.mean_p_holm),
        *(_or_dash(value, nats) for value in (loss.index, loss.null_95)),
        p_words(loss.p_holm),
    )


def _gate_row(gate: HeadGate) -> tuple[str, ...]:
    shares = (gate.entropy, gate.entropy_of_mean, gate.recurrence, gate.prior_distance)
    cells = (_or_dash(share, percent) for share in shares)
    return (gate.name, *cells, _or_dash(gate.prior_correlation, nats))


def _roll_row(roll: Roll) -> tuple[str, ...]:
    won = roll.won or Interval(value=None)
    return (
        str(roll.slots),
        _or_dash(roll.mean.value, points),
        _or_dash(won.value, points),
        _ends(won).strip(" ()") or "–",
        *(_or_dash(value, lambda x: number(x, 2)) for value in (roll.stays, roll.moves)),
    )
