"""Our own compressed Qwen3, read from its config without torch."""

from __future__ import annotations

from ...errors import UsageError
from ...grid import WindowGrid
from ...models.compression import Compression, as_saved
from .base import Anchor, Fold, Layer, Reading
from .fields import Fields

TAIL_ONLY = ("csa", "hca")
"""Compressors that read uncompressed tokens in their sliding window only; the others read all that no entry holds."""


def read_own(fields: Fields) -> Reading:
    """The `compression` of a `phasescope_qwen3`: one grid per layer and KV head.

    The rest of a config is checked by the model's own configuration class; here only what makes the grids is read.
    """
    count = fields.layers(default=32)
    heads = fields.maybe("num_key_value_heads") or fields.whole("num_attention_heads", default=32)
    if fields.values.get("compression") is None:
        return Reading((), "compression is null: full attention")
    given = fields.part("compression")
    try:
        plan = Compression.checked(**as_saved(given.values))
        by_layer = plan.grids(count, heads)
    except UsageError as error:
        raise UsageError(f"{given.source}: {error}") from None
    dynamic = plan.compressor == "dynamic"
    anchor: Anchor = "content" if dynamic else "first real token"
    raw = plan.tail if plan.compressor in TAIL_ONLY else None
    learned = plan.compressor != "uniform"
    layers = []
    for index, grids in enumerate(by_layer):
        folds = [_fold(grid, anchor, plan, learned, raw) for grid in dict.fromkeys(grids)]
        layers.append(Layer(index, plan.compressor, tuple(folds)))
    return Reading(tuple(layers), "", _notes(dynamic, plan))


def _fold(grid: WindowGrid, anchor: Anchor, plan: Compression, learned: bool, raw: int | None) -> Fold:
    """Nothing depends on the grid before the first entry is visible; a longer tail keeps all tokens readable."""
    before = grid.closes(0) + (not plan.closing)
    reach = max(plan.tail, before)
    bias = learned and anchor != "content"
    return Fold(
        "pooled content", grid, anchor, reach, reach == before, learned, tail=True, raw=raw, bias=bias
    )


def _notes(dynamic: bool, plan: Compression) -> tuple[str, ...]:
    notes = [
        f"the last {plan.tail} tokens are read uncompressed, in an entry or not"
        if plan.tail
        else "a token is read uncompressed until its entry is complete, and never both ways"
    ]
    if not plan.closing:
        notes.append("the token that closes a window still reads its tokens; the next one reads the entry")
    if dynamic:
        notes.append(f"windows end where the content says so, after {plan.stride} tokens on average")
    if plan.settings.get("topk"):
        notes.append(f"a query reads the {plan.settings['topk']} best entries of an indexer")
    return tuple(notes)
