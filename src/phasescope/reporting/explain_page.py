"""The page of an explanation, from explain.json alone: sections with figures, in the look of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..explaining.coverage_score import KEPT
from ..explaining.result import read_explanation
from ..files import write_atomic
from ..statistics.verdict import SIGNIFICANT, listed, number, p_words, percent, plain, points
from .explain_figures import Row, account_curve, gate_bars, heat_map, loss_curve
from .figures import Figure
from .pages import filled

HEADLINES = ("contrast", "heads", "account", "boundary")
"""Sections whose sentence may stand on top, the first that has one."""
MOST_FIGURES = 12
"""Single heads that are drawn; tables hold all of them."""
LOSS = (
    "Unit",
    "Lost on average",
    "95 % over all",
    "p, corrected",
    "Specialisation",
    "By chance below",
    "p, corrected ",
)
GATES = ("Head", "Entropy", "Entropy of the mean", "Recurs", "From the prior", "Correlation with it")
ROLLS = ("Rolled by", "Mean changes by", "Boundary changes by", "95 % over all rolls", "Stays", "Moves along")


def explain_page(path: Path) -> Path:
    """Write explain.html beside an explain.json: one file that needs nothing beside it.

    Returns:
        its path.
    """
    told = read_explanation(path).model_dump(mode="json", by_alias=True)
    said = sentences(told)
    page = filled(
        "explain.html.j2",
        title=plain(f"{told['run']}, {told['condition']}"),
        sentences=said,
        headline=next((said[name] for name in HEADLINES if name in said), "Nothing could be explained."),
        told=told,
        heads=_heads(told),
        head_rows=[_loss_row(loss) for loss in told["losses"].get("accuracy", [])],
        loss_columns=LOSS,
        logprob_rows=[_loss_row(loss, nats=True) for loss in told["losses"].get("logprob", [])],
        gates=[gate_bars(f"gate-{index}", gate) for index, gate in enumerate(told["gates"][:MOST_FIGURES])],
        gate_rows=[_gate_row(gate) for gate in told["gates"]],
        gate_columns=GATES,
        account=_account(told),
        boundary=_boundary(told),
        rolls=_rolls(told),
        roll_rows=[_roll_row(roll) for roll in told["boundary"]["rolls"]],
        roll_columns=ROLLS,
        findings=_findings(told),
    )
    write_atomic(path.with_name("explain.html"), page)
    return path.with_name("explain.html")


def explain_summary(path: Path) -> str:
    """What a terminal prints: one sentence per section."""
    told = read_explanation(path).model_dump(mode="json", by_alias=True)
    return "\n".join(sentences(told).values()).replace("\N{NO-BREAK SPACE}", " ")


def sentences(told: dict[str, Any]) -> dict[str, str]:
    """What was found, in one plain sentence per section."""
    said = {
        "heads": _head_words(told),
        "contrast": _contrast_words(told),
        "gates": _gate_words(told),
        "account": _account_words(told),
        "boundary": _boundary_words(told),
    }
    return {section: words for section, words in said.items() if words}


def _head_words(told: dict[str, Any]) -> str:
    losses = told["losses"].get("accuracy", [])
    if not losses:
        return ""
    largest = max(losses, key=lambda loss: loss["mean"]["value"])
    uneven = [loss["unit"] for loss in losses if loss["p_holm"] < SIGNIFICANT and loss["index"]]
    where = (
        f"the contribution of {listed(uneven)} falls unevenly over phases"
        if uneven
        else "no contribution falls unevenly over phases beyond chance"
    )
    return (
        f"Taking away {largest['unit']} costs most, {points(largest['mean']['value'])} points of accuracy on average; "
        f"{where} ({len(losses)} units, p < 0.05 after correction)."
    )


def _contrast_words(told: dict[str, Any]) -> str:
    """The contrast of gates' preferred phases, or that there is none, with the power."""
    if not told["contrasts"]:
        return ""
    name, found = max(told["contrasts"].items(), key=lambda one: one[1]["estimate"]["value"])
    estimate = found["estimate"]
    if estimate["low"] is None:
        return f"{name} costs {points(estimate['value'])} points more at the phases that its gate prefers."
    interval = f"{points(estimate['low'])} to {points(estimate['high'])}"
    phases = ", ".join(map(str, found["phases"]))
    if estimate["low"] > 0:
        return (
            f"Without {name}, {points(estimate['value'])} points ({interval}) more are lost at the phases that its "
            f"gate prefers ({phases}) than at the others."
        )
    more = f"{points(estimate['value'])} points ({interval}) more are lost at the phases that it prefers ({phases})"
    return (
        f"No head is seen to serve the phases that its gate prefers: without {name}, {more} than at the others; a "
        f"difference of {points(found['smallest'])} would have been found with 80 % power."
    )


def _gate_words(told: dict[str, Any]) -> str:
    gates = [gate for gate in told["gates"] if gate["recurrence"] is not None]
    if not gates:
        return ""
    most = max(gates, key=lambda gate: gate["recurrence"])
    kind = "recurs on every input" if most["recurrence"] >= 0.5 else "follows content more than it recurs"
    return (
        f"The gate with the steadiest preference, L{most['layer']}.H{most['head']}, {kind}: "
        f"{percent(most['recurrence'])} of its variance is between slots."
    )


def _account_words(told: dict[str, Any]) -> str:
    account = told["coverage_score"]
    if account is None:
        return ""
    unkept = account["unkept"]
    none = (
        f"no head keeps phase {listed(list(map(str, unkept)))}" if unkept else "some head keeps every phase"
    )
    hit = "among" if account["hit"] else "not among"
    flat = " (the curve is flat within its error)" if told["curve"]["flat"] else ""
    measured = " and ".join(map(str, account["measured_weakest"]))
    return (
        f"By the gates alone, {none}, and phase {account['weakest']} is kept least; it is {hit} the two measured "
        f"weakest, {measured}{flat} (chance {percent(account['chance'])})."
    )


def _boundary_words(told: dict[str, Any]) -> str:
    closed = told["boundary"]["contrasts"].get("closed")
    if closed is None:
        return ""
    phases = listed([str(phase) for phase in closed["phases"]])
    value, low, high = (closed["estimate"][name] for name in ("value", "low", "high"))
    interval = "" if low is None else f" ({points(low)} to {points(high)})"
    said = (
        f"Where the key's window has closed when its value is read (phases {phases}), accuracy differs by "
        f"{points(value)} points{interval} from the other phases"
    )
    rolls = [roll for roll in told["boundary"]["rolls"] if roll["won"] is not None]
    if not rolls:
        return said + "."
    best = max(rolls, key=lambda roll: roll["won"]["value"])
    won = best["won"]
    ends = "" if won["low"] is None else f" ({points(won['low'])} to {points(won['high'])})"
    back = value < 0 and won["value"] >= -value / 2
    verb = "wins half of it back or more" if back else "does not win it back"
    changed = f"{points(won['value'])} points{ends}"
    return (
        f"{said}; rolling the gates {verb}: at best it changes them by {changed}, by {best['slots']} slots."
    )


def _heads(told: dict[str, Any]) -> list[Figure]:
    """The map of heads against phases, and a curve for each head that costs something."""
    losses = told["losses"].get("accuracy", [])
    if not losses:
        return []
    preferred = {name: found["phases"] for name, found in told["contrasts"].items()}
    rows = [
        Row(
            loss["unit"],
            loss["phase"],
            [phase in preferred.get(loss["unit"], ()) for phase in range(told["stride"])],
        )
        for loss in losses
    ]
    scale = max(0.05, *(abs(value) for row in rows for value in row.values))
    framed = " Framed: the phases that the head's gate prefers." if preferred else ""
    figures = [
        heat_map(
            "map",
            "Accuracy lost, heads × phases",
            f"Points of accuracy lost at each phase without each unit; a full cell is {points(scale)}.{framed}",
            rows,
            f"phase of the {told['coordinate']} (position mod {told['stride']})",
            signed=True,
            scale=scale,
        )
    ]
    shown = [loss for loss in losses if loss["mean_p_holm"] < SIGNIFICANT][:MOST_FIGURES]
    counts = (told["blocks"], told["contexts"])
    figures += [
        loss_curve(f"loss-{index}", loss, told["condition"], told["coordinate"], counts)
        for index, loss in enumerate(shown)
    ]
    return figures


def _account(told: dict[str, Any]) -> list[Figure]:
    account = told["coverage_score"]
    if account is None:
        return []
    names = [
        f"L{gate['layer']}.H{gate['head']}"
        for gate in told["gates"]
        if gate["layer"] == max(g["layer"] for g in told["gates"])
    ]
    rows = [
        Row(name, values, kept)
        for name, values, kept in zip(names, account["heads"], account["kept"], strict=True)
    ]
    heads = heat_map(
        "kept",
        "What each head keeps",
        f"Link × keep of each head of the last layer, in percent. Framed: kept, at least {100 * KEPT:.0f} % of the "
        "largest.",
        rows,
        f"phase of the {told['coordinate']} (position mod {told['stride']})",
        signed=False,
        scale=1.0,
    )
    return [account_curve("account-curve", account, told["curve"], told["coordinate"]), heads]


def _boundary(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of the boundary's table: which phases, and how they differ."""
    words = {
        "parted": "No window holds key and value",
        "closed": "The key's window is closed when its value is read",
    }
    rows = []
    for name, said in words.items():
        phases = told["boundary"][name]
        found = told["boundary"]["contrasts"].get(name)
        rows.append(
            (
                said,
                ", ".join(map(str, phases)) or "none",
                "–" if found is None else _interval(found["estimate"]),
            )
        )
    return rows


def _rolls(told: dict[str, Any]) -> Figure | None:
    rolls = told["boundary"]["rolls"]
    if not rolls:
        return None
    edge = set(told["boundary"]["closed"])
    framed = [phase in edge for phase in range(told["stride"])]
    rows = [
        Row("0", told["curve"]["rate"], framed),
        *(Row(str(r["slots"]), r["curve"], framed) for r in rolls),
    ]
    scale = max(0.05, *(value for row in rows for value in row.values))
    return heat_map(
        "rolls",
        "Accuracy under rolled gates",
        f"Rows: by how many slots the bias of every gate was rolled. A full cell is {percent(scale)}. Framed: boundary "
        "phases.",
        rows,
        f"phase of the {told['coordinate']} (position mod {told['stride']})",
        signed=False,
        scale=scale,
    )


def _interval(estimate: dict[str, Any], nats: bool = False) -> str:
    if estimate["value"] is None:
        return "–"
    shown = (lambda value: number(value, 2)) if nats else points
    ends = "" if estimate["low"] is None else f" [{shown(estimate['low'])}, {shown(estimate['high'])}]"
    return f"{shown(estimate['value'])}{ends}"


def _loss_row(loss: dict[str, Any], nats: bool = False) -> tuple[str, ...]:
    shown = (lambda value: number(value, 2)) if nats else points
    mean = loss["mean"]
    return (
        plain(loss["unit"], 80),
        shown(mean["value"]),
        "–" if mean["low"] is None else f"{shown(mean['low'])} to {shown(mean['high'])}",
        p_words(loss["mean_p_holm"]),
        "–" if loss["index"] is None else number(loss["index"], 2),
        "–" if loss["null_95"] is None else number(loss["null_95"], 2),
        p_words(loss["p_holm"]),
    )


def _gate_row(gate: dict[str, Any]) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return "–" if value is None else percent(value)

    correlation = gate["prior_correlation"]
    return (
        f"L{gate['layer']}.H{gate['head']}",
        share(gate["entropy"]),
        share(gate["entropy_of_mean"]),
        share(gate["recurrence"]),
        share(gate["prior_distance"]),
        "–" if correlation is None else number(correlation, 2),
    )


def _roll_row(roll: dict[str, Any]) -> tuple[str, ...]:
    def shown(value: float | None) -> str:
        return "–" if value is None else number(value, 2)

    won = roll["won"]
    ends = "–" if won is None or won["low"] is None else f"{points(won['low'])} to {points(won['high'])}"
    return (
        str(roll["slots"]),
        points(roll["mean"]["value"]),
        "–" if won is None else points(won["value"]),
        ends,
        shown(roll["stays"]),
        shown(roll["moves"]),
    )


def _findings(told: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and method of every kind of finding."""
    return sorted({finding["name"]: finding["method"] for finding in told["findings"]}.items())
