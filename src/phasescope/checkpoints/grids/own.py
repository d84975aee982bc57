"""Our own compressed Qwen3, read from its config without torch."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from ...grid import WindowGrid
from .base import Anchor, Fold, Layer, Reading
from .fields import Fields

TAIL_ONLY = ("csa", "hca")
"""Compressors that read raw tokens in their tail window only; the others read all that no entry covers."""


def read_own(fields: Fields) -> Reading:
    """The `compression` of a `phasescope_qwen3`: one grid per layer and KV head.

    The rest of a config is checked by the model's own configuration class; here only what makes the grids is read.
    """
    count = fields.layers(default=32)
    plan = fields.part("compression")
    if not plan.values:
        return Reading((), "compression is null: full attention")
    heads = fields.maybe("num_key_value_heads") or fields.whole("num_attention_heads", default=32)
    compressor = plan.word("compressor", default="")
    width, stride = plan.maybe("width"), plan.maybe("stride")
    if not compressor or width is None or stride is None:
        raise plan.refused("compressor, width and stride", None, "given, all three")
    tail = plan.whole("tail", default=0, least=0)
    settings = plan.values.get("settings")
    by_layer = [
        [WindowGrid(width, stride, shift) for shift in shifts] for shifts in _shifts(plan, count, heads)
    ]
    dynamic = compressor == "dynamic"
    anchor: Anchor = "content" if dynamic else "first real token"
    raw = tail if compressor in TAIL_ONLY else None
    learned = compressor != "uniform"
    layers = []
    for index, grids in enumerate(by_layer):
        folds = [_fold(grid, anchor, tail, learned, raw) for grid in dict.fromkeys(grids)]
        layers.append(Layer(index, compressor, tuple(folds)))
    return Reading(tuple(layers), "", _notes(dynamic, stride, tail, settings))


def _fold(grid: WindowGrid, anchor: Anchor, tail: int, learned: bool, raw: int | None) -> Fold:
    """Nothing depends on the grid before the first window is complete; a longer tail keeps all tokens readable."""
    before = grid.closes(0)
    reach = max(tail, before)
    bias = learned and anchor != "content"
    return Fold(
        "pooled content", grid, anchor, reach, reach == before, learned, tail=True, raw=raw, bias=bias
    )


def _notes(dynamic: bool, stride: int, tail: int, settings: Any) -> tuple[str, ...]:
    notes = [
        f"the last {tail} tokens are read raw, in an entry or not"
        if tail
        else "a token is read raw until its entry is complete, and never both ways"
    ]
    if dynamic:
        notes.append(f"windows end where the content says so, after {stride} tokens on average")
    if isinstance(settings, dict) and settings.get("topk"):
        notes.append(f"a query reads the {settings['topk']} best entries of an indexer")
    return tuple(notes)


def _shifts(plan: Fields, layers: int, heads: int) -> list[list[int]]:
    """The shift of every layer and KV head: one number, one per layer, or one per layer and head."""
    shift = plan.values.get("shift") or 0
    by_layer = [shift] * layers if isinstance(shift, int) else shift
    if not isinstance(by_layer, list | tuple) or len(by_layer) != layers:
        raise plan.refused("shift", shift, f"one number, or one per layer, {layers} in all")
    by_head = [[one] * heads if isinstance(one, int) else one for one in by_layer]
    for place, shifts in enumerate(by_head):
        if not isinstance(shifts, list | tuple) or len(shifts) != heads:
            raise plan.refused(f"shift[{place}]", shifts, f"one number, or one per KV head, {heads} in all")
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in shifts):
            raise UsageError(f"{plan.source}: shift[{place}] is {shifts!r:.60}; it must be whole numbers")
    return [list(shifts) for shifts in by_head]
