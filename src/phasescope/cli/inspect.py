"""`phasescope inspect`: which grids a checkpoint has, before anything is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .. import zoo
from ..errors import UsageError
from ..records import dump_json
from ..targets import (
    Fold,
    Prior,
    Target,
    alike,
    families,
    phase_prior,
    ranges,
    read_target,
    technique,
)

SHOWN_PHASES = 8
COLUMNS = (
    *(
        "family",
        "model types",
        "config fields",
        "windows",
        "what the grid does",
        "anchor",
        "learned",
        "reach",
    ),
    "tail read",
)


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
    """Say which token grids a checkpoint has: strides, what they do, reach, phase prior and coverage holes."""
    if sum((path is not None, engine is not None, table)) != 1:
        raise UsageError("give a checkpoint, or --technique NAME, or --families: one of the three")
    if table:
        print("\n".join(family_rows()))
        return
    target = technique(engine).target if engine is not None else read_target(_place(str(path)))
    prior, lacking = ((), "") if engine is not None else _prior(target)
    if as_json:
        described = {**target.describe(), "prior": [one.describe() for one in prior]}
        print(dump_json(described | ({"prior_lacks": lacking} if lacking else {})), end="")
        return
    _show(target, prior, lacking)


def family_rows() -> Iterator[str]:
    """The families as rows of a Markdown table, each from the config that its family gives as an example."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * len(COLUMNS)}"
    for family, target in families():
        cells = [family.name, _types(family.types), family.fields or "–", *_summary(target)]
        yield f"| {' | '.join(cells)} |"


def _place(path: str) -> str | Path:
    return zoo.folder(path) if path in zoo.names() and not Path(path).exists() else path


def _prior(target: Target) -> tuple[Sequence[Prior], str]:
    """The phase prior, or why there is none to be read where there could be one."""
    if not any(fold.learned and fold.grid is not None for fold in target.folds):
        return (), ""
    folder = Path(target.source).parent
    found = phase_prior(folder, target)
    return found, "" if found else f"no position bias among the weights in {folder}"


def _show(target: Target, prior: Sequence[Prior], lacking: str) -> None:
    out = Console(highlight=False, markup=False, emoji=False)
    out.print(_plain(target.verdict), style="bold", soft_wrap=True)
    known = f", read as {target.family}" if target.family and target.family != target.model_type else ""
    out.print(_plain(f"model type {target.model_type}{known}; {target.source}"), soft_wrap=True)
    if target.folds:
        out.print(_layers(target))
        for hole in target.holes:
            out.print(
                f"coverage hole in layers {ranges(hole.layers)}: {hole.why}", style="bold", soft_wrap=True
            )
        if not target.holes:
            out.print("no coverage hole: every token can be read in every layer with a grid", soft_wrap=True)
    if prior:
        out.print(_priors(prior))
    elif lacking:
        out.print(_plain(lacking), soft_wrap=True)
    for note in target.notes:
        out.print(f"- {_plain(note)}", soft_wrap=True)
    if target.status == "unknown":
        heard = target.suspicious or ("none: probably dense, but nobody has looked",)
        out.print("fields that sound like a grid:", soft_wrap=True)
        for field in heard:
            out.print(f"  {_plain(field)}", soft_wrap=True)


def _layers(target: Target) -> Table:
    table = Table(title=f"{len(target.layers)} layers", title_justify="left")
    for column in (
        "layers",
        "kind",
        "what the grid does",
        "windows",
        "anchor",
        "reach",
        "learned",
        "tail read",
    ):
        table.add_column(column)
    for layer, numbers in alike(target.layers):
        first = [ranges(numbers), _plain(layer.kind)]
        for fold in layer.folds or (None,):
            table.add_row(*first, *(_cells(fold) if fold is not None else ("no grid", *["–"] * 5)))
            first = ["", ""]
    return table


def _cells(fold: Fold) -> tuple[str, ...]:
    windows = "follow content" if fold.grid is None else str(fold.grid)
    return (fold.does, windows, fold.anchor, _reach(fold), _yes(fold.learned), _yes(fold.tail))


def _reach(fold: Fold) -> str:
    if fold.reach is None:
        return "not in the config"
    return f"{fold.reach:,}" if fold.exact or not fold.reach else f"{fold.reach:,} (retrieval)"


def _yes(value: bool | None) -> str:
    return "–" if value is None else "yes" if value else "no"


def _priors(prior: Sequence[Prior]) -> Table:
    table = Table(
        title="phase prior: weight of each phase with all content equal, uniform = 1", title_justify="left"
    )
    for column in ("layer", "of", "windows", "weights by phase", "favours", "spread", "in a channel"):
        table.add_column(column)
    for one in prior:
        share = [weight * len(one.phases) for weight in one.phases]
        shown = " ".join(f"{weight:.2f}" for weight in share[:SHOWN_PHASES])
        more = f" … ({len(share)} phases)" if len(share) > SHOWN_PHASES else ""
        head = "" if one.head is None else f", head {one.head}"
        best = ", ".join(map(str, one.favoured[:4])) + (", …" if len(one.favoured) > 4 else "")
        spread = (f"{one.spread:.2f}", f"{one.channel_spread:.2f}")
        table.add_row(str(one.layer), one.role + head, str(one.grid), shown + more, best or "none", *spread)
    return table


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


def _plain(text: str) -> str:
    """Without control characters, which a config could carry into a terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
