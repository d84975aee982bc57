"""`phasescope list`: what there is to choose from."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from ..catalog import BACKENDS, COMPRESSORS, ENGINES, PROTOCOLS
from ..checkpoints import smollm2 as natural
from ..checkpoints import zoo


def list_names() -> None:
    """List the zoo's models, compressors, protocols, backends and engines."""
    console = Console(soft_wrap=True)
    table = Table(title="zoo: accuracy and phase SD in points, by protocol", title_justify="left")
    for column in ("model", "grid", "KV heads", "pairs", "prefix", "in_sequence"):
        table.add_column(column)
    for name in zoo.names():
        card = zoo.card(name)
        plan = card.compression
        grid = f"W{plan['width']}/S{plan['stride']} {plan['compressor']}" if plan else "full attention"
        found = [_found(card.measured[protocol]) for protocol in ("prefix", "in_sequence")]
        table.add_row(name, grid, str(card.kv_heads), str(card.pairs), *found)
    console.print(table)
    console.print(f"a pretrained model without a grid: {natural.NAME}, from the package {natural.PACKAGE}")
    for kind in (COMPRESSORS, PROTOCOLS, BACKENDS, ENGINES):
        console.print(f"{kind.kind}s: {', '.join(kind.names())}")


def _found(measured: dict[str, Any]) -> str:
    low, value, high = (100 * measured[name] for name in ("low", "phase_sd", "high"))
    return f"{measured['mean_accuracy']:.1%}, {value:.1f} ({low:.1f} to {high:.1f})"
