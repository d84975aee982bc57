"""`phasescope list`: what there is to choose from."""

from __future__ import annotations

from rich.table import Table

from ..catalog import BACKENDS, COMPRESSORS, ENGINES, PROTOCOLS
from ..checkpoints import smollm2, zoo
from ..checkpoints.card import Recall
from .terminal import Terminal


def list_names() -> None:
    """List the zoo's models, compressors, protocols, backends and engines."""
    console = Terminal(soft_wrap=True)
    table = Table(title="zoo: accuracy and phase SD in points, by protocol", title_justify="left")
    for column in ("model", "grid", "KV heads", "pairs", "prefix", "in_sequence"):
        table.add_column(column)
    for name in zoo.names():
        card = zoo.card(name)
        plan = card.compression
        grid = f"W{plan.width}/S{plan.stride} {plan.compressor}" if plan else "full attention"
        found = [_found(card.measured.get(protocol)) for protocol in ("prefix", "in_sequence")]
        table.add_row(name, grid, str(card.kv_heads), str(card.pairs), *found)
    console.print(table)
    console.print(f"a pretrained model without a grid: {smollm2.NAME}, from the package {smollm2.PACKAGE}")
    for kind in (COMPRESSORS, PROTOCOLS, BACKENDS, ENGINES):
        console.print(f"{kind.kind}s: {', '.join(kind.names())}")


def _found(recall: Recall | None) -> str:
    if recall is None or recall.mean_accuracy is None or recall.phase_sd is None:
        return "–"
    found = f"{recall.mean_accuracy:.1%}, {100 * recall.phase_sd:.1f}"
    if recall.low is None or recall.high is None:
        return found
    return f"{found} ({100 * recall.low:.1f} to {100 * recall.high:.1f})"
