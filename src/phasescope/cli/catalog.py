"""`phasescope list`: what there is to choose from."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .. import zoo
from ..catalog import BACKENDS, COMPRESSORS, PROTOCOLS


def list_names() -> None:
    """List the zoo's models, compressors, protocols and backends."""
    console = Console(soft_wrap=True)
    table = Table(title="zoo", title_justify="left")
    for column in ("model", "grid", "KV heads", "trained on pairs", "accuracy", "phase SD"):
        table.add_column(column)
    for name in zoo.names():
        card = zoo.card(name)
        plan = card["compression"]
        grid = (
            "full attention" if plan is None else f"W{plan['width']}/S{plan['stride']} {plan['compressor']}"
        )
        phase = card["phase"]
        table.add_row(
            name,
            grid,
            str(card["kv_heads"]),
            str(card["pairs"]),
            f"{phase['mean_accuracy']:.1%}",
            f"{phase['phase_sd']:.1%} ({phase['low']:.1%} to {phase['high']:.1%})",
        )
    console.print(table)
    for kind in (COMPRESSORS, PROTOCOLS, BACKENDS):
        console.print(f"{kind.kind}s: {', '.join(kind.names())}")
