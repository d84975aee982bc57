"""`phasescope inspect`: which grids a checkpoint has, before anything is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from ..checkpoints.grids import (
    FLAT,
    Fold,
    Prior,
    Target,
    alike,
    families,
    overall,
    phase_prior,
    ranges,
    read_target,
    technique,
)
from ..errors import UsageError
from ..files import dump_json
from .terminal import Terminal, say, say_json

SHOWN_WEIGHTS = 16
MOST_BARS = 16
BARS = "▁▂▃▄▅▆▇█"
PIPED_WIDTH = 120
HEAD = "family | model types | config fields | windows | what the grid does | anchor | learned | reach | tail read"


def inspect(
    path: Annotated[
        str | None,
        typer.Argument(help="A checkpoint's folder, a config.json, a zoo name, or owner/name on the hub."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    engine: Annotated[
        str | None, typer.Option("--technique", help="A cache or engine technique in place of a checkpoint.")
    ] = None,
    table: Annotated[
        bool, typer.Option("--families", help="The table of all families, as Markdown.")
    ] = False,
) -> None:
    """Say which token grids a checkpoint has: strides, what they do, reach, slot weights and unread tokens."""
    if sum((path is not None, engine is not None, table)) != 1:
        raise UsageError("give a checkpoint, or --technique NAME, or --families: one of the three")
    if table:
        say("\n".join(family_rows()))
        return
    target = technique(engine).target if engine is not None else read_target(str(path))
    prior, lacking = ((), "") if engine is not None else _prior(target)
    if as_json:
        described = {**target.describe(), "prior": [one.describe() for one in prior]}
        say_json(dump_json(described | ({"prior_lacks": lacking} if lacking else {})))
        return
    _show(target, prior, lacking)


def family_rows() -> Iterator[str]:
    """The families as rows of a Markdown table, each from the config that its family gives as an example."""
    yield f"| {HEAD} |"
    yield f"|{'---|' * len(HEAD.split('|'))}"
    for family, target in families():
        cells = [family.name, _types(family.types), family.fields or "–", *_summary(target)]
        yield f"| {' | '.join(cells)} |"


def _prior(target: Target) -> tuple[Sequence[Prior], str]:
    """The slot weights, or why there are none to be read where there could be some."""
    if not any(fold.bias for fold in target.folds):
        return (), ""
    folder = Path(target.source).parent
    if not any(folder.glob("*.safetensors*")):
        return (), f"no slot weights: {folder} holds no *.safetensors"
    found = phase_prior(folder, target)
    return found, "" if found else f"no slot weights: no position bias among the weights in {folder}"


def _show(target: Target, prior: Sequence[Prior], lacking: str) -> None:
    out = Terminal()
    if not out.is_terminal:
        out.width = max(out.width, PIPED_WIDTH)

    def tell(text: str, style: str = "") -> None:
        out.print(text, style=style, soft_wrap=True)

    tell(target.verdict, "bold")
    known = f", read as {target.family}" if target.family not in ("", target.model_type) else ""
    tell(f"model type {target.model_type}{known}; {target.source}")
    if target.folds:
        out.print(_layers(target))
        for hole in target.holes:
            tell(f"unread tokens in layers {ranges(hole.layers)}: {hole.why}", "bold")
        if not target.holes:
            tell(
                "no unread tokens: in every layer with a grid all tokens can be read, uncompressed or through an entry"
            )
    if prior:
        for mean, count in overall(prior):
            tell(_weights(mean, count))
        tell(
            "these weights say how a gate shares a window out before it reads, not what the model recalls: measure that"
        )
        if max(one.channel_spread for one in prior) >= FLAT:
            out.print(_weights_table(prior[:SHOWN_WEIGHTS]))
        if len(prior) > SHOWN_WEIGHTS:
            tell(f"{len(prior) - SHOWN_WEIGHTS} further rows: --json has them all")
    elif lacking:
        tell(lacking)
    for note in target.notes:
        tell(f"- {note}")
    if target.status == "unknown":
        tell("fields that sound like a grid:" if target.suspicious else "no field sounds like a grid")
        for field in target.suspicious:
            tell(f"  {field}")


def _table(title: str, columns: str) -> Table:
    return Table(*columns.split("|"), title=title, title_justify="left", box=box.SIMPLE_HEAD)


def _layers(target: Target) -> Table:
    count = len(target.layers)
    table = _table(
        f"{count} layer{'s' * (count != 1)}", "layers|kind|windows|what the grid does|counted from|reach"
    )
    for layer, numbers in alike(target.layers):
        first = [ranges(numbers), layer.kind]
        for fold in layer.folds or (None,):
            table.add_row(*first, *(_cells(fold) if fold is not None else ("–", "no grid", "–", "–")))
            first = ["", ""]
    return table


def _cells(fold: Fold) -> tuple[str, ...]:
    windows = "by content" if fold.grid is None else str(fold.grid)
    learned = ", learned" if fold.learned else ""
    lost = ", tail not read" if fold.tail is False else ""
    return (windows, fold.does + learned + lost, fold.anchor, _reach(fold))


def _reach(fold: Fold) -> str:
    if fold.reach is None:
        return "not in the config"
    return f"{fold.reach:,}" if fold.exact or not fold.reach else f"{fold.reach:,} (retrieval)"


def _yes(value: bool | None) -> str:
    return "–" if value is None else "yes" if value else "no"


def _weights(mean: Prior, count: int) -> str:
    """The slot weights of one grid, averaged over layers and heads."""
    of = f"slot weights of {count} {'bias' if count == 1 else 'biases'} on {mean.grid} ({mean.role})"
    if not mean.favoured:
        return f"{of}: flat on average; within a channel phases differ by {mean.channel_spread:.2f} of a fair share"
    share = len(mean.phases)
    most = ", ".join(f"{phase} (×{mean.phases[phase] * share:.2f})" for phase in mean.favoured[:4])
    least = min(range(share), key=lambda phase: mean.phases[phase])
    return (
        f"{of}: tokens of phase {most} weigh most, of phase {least} least (×{mean.phases[least] * share:.2f})"
    )


def _weights_table(prior: Sequence[Prior]) -> Table:
    columns = "layer|of|windows|phases 0 …|most|least|spread|in a channel"
    table = _table("weight of each phase with all content equal", columns)
    for one in prior:
        head = "" if one.head is None else f", head {one.head}"
        share = [weight * len(one.phases) for weight in one.phases]
        ends = [f"{share.index(end)} ×{end:.2f}" for end in (max(share), min(share))]
        spread = (f"{one.spread:.2f}", f"{one.channel_spread:.2f}")
        table.add_row(str(one.layer), one.role + head, str(one.grid), _bars(share), *ends, *spread)
    return table


def _bars(share: Sequence[float]) -> str:
    """One bar per phase, or per group of neighbouring phases where there are many."""
    groups = min(len(share), MOST_BARS)
    ends = [place * len(share) // groups for place in range(groups + 1)]
    means = [sum(share[a:b]) / (b - a) for a, b in pairwise(ends)]
    return "".join(BARS[round(mean / max(means) * (len(BARS) - 1))] for mean in means)


def _types(types: Sequence[str]) -> str:
    shown = ", ".join(types[:6])
    return shown if len(types) <= 6 else f"{shown} and {len(types) - 6} more"


def _summary(target: Target) -> list[str]:
    """Strides and what follows, in the cells of a family's row."""
    folds = target.folds
    if target.status == "none":
        return ["none", target.without, *["–"] * 4]

    def each(value: Any) -> str:
        return " · ".join(dict.fromkeys(value(fold) for fold in folds))

    return [
        each(lambda fold: "by content" if fold.grid is None else str(fold.grid)),
        each(lambda fold: fold.does),
        each(lambda fold: fold.anchor),
        each(lambda fold: _yes(fold.learned)),
        each(_reach),
        each(lambda fold: _yes(fold.tail)),
    ]
