"""Indexers that score whole windows: contents stay token by token, the choice of what to read is on a grid."""

from __future__ import annotations

from ...grid import WindowGrid
from .base import Fold, Hole, Layer, Reading
from .fields import Fields

INDEXED, LINEAR, FULL = "indexed_attention", "linear_attention", "full_attention"
OLDER = {
    "full_attention": INDEXED,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
    "attention": INDEXED,
    "mamba": LINEAR,
}


def read_qwen4(fields: Fields) -> Reading:
    """Index keys are averaged over `indexer_compress_ratio` visible tokens; the incomplete rest is always read.

    Source: `transformers` 5.24, models/qwen4_exp: windows run over the visible tokens of each row, so that left
        padding does not move them; with up to `indexer_budget` tokens in complete windows all are read.
    """
    count = fields.layers(default=40)
    every = fields.whole("full_attention_interval", default=4) if "layer_types" not in fields else 4
    kinds = fields.kinds(
        count,
        (LINEAR, INDEXED),
        lambda: [LINEAR if (i + 1) % every else INDEXED for i in range(count)],
        renamed=OLDER,
    )
    names = ("n_heads", "kv_heads", "head_dim", "budget", "compress_ratio")
    given = [f"indexer_{name}" for name in names if f"indexer_{name}" in fields]
    if not given:
        return Reading(_plain(kinds), "the config sets no indexer: full attention and linear attention")
    ratio, budget = fields.maybe("indexer_compress_ratio"), fields.maybe("indexer_budget")
    if ratio is None or budget is None:
        raise fields.refused("indexer_compress_ratio and indexer_budget", None, f"given, as {given[0]} is")
    fold = Fold("selection", WindowGrid(ratio, ratio), "first real token", budget, tail=True)
    without = "the indexer chooses token by token" if ratio == 1 else ""
    return Reading(_with(kinds, fold if ratio > 1 else None), without, (_linear_note(kinds),))


def read_glm5_next(fields: Fields) -> Reading:
    """Index keys are pooled over `index_kpool` tokens by a learned gate with a position bias.

    Source: `transformers` 5.24, models/glm5_next: pools begin at the first real token; a pool can be chosen once its
        last token is visible; `index_kpool_always_select_tail` adds the tokens of the pool that is not complete.
    """
    count = fields.layers(default=45)
    default = "index_kpool is not in this config: transformers takes 16, the released GLM-5.3-Flash has 4"
    notes = [] if "index_kpool" in fields else [default]
    pool, budget = fields.whole("index_kpool", default=16), fields.whole("index_topk", default=2048)
    tail = fields.flag("index_kpool_always_select_tail", default=True)
    kinds = fields.kinds(
        count,
        (LINEAR, INDEXED),
        lambda: [LINEAR if i % 4 != 3 else INDEXED for i in range(count)],
        renamed=OLDER,
    )
    fold = Fold(
        "selection", WindowGrid(pool, pool), "first real token", budget, learned=True, tail=tail, bias=True
    )
    layers = _with(kinds, fold if pool > 1 else None)
    indexed = tuple(layer.index for layer in layers if layer.folds)
    without = "the indexer chooses token by token" if pool == 1 else "no layer has an indexer"
    lost = Hole(
        indexed,
        f"up to {pool - 1} of the newest tokens, the query's own included, are in no complete pool and are not read; "
        "set index_kpool_always_select_tail to true",
    )
    return Reading(
        layers,
        "" if indexed else without,
        (*notes, _linear_note(kinds)),
        (lost,) if indexed and not tail else (),
    )


def read_minimax_m3(fields: Fields) -> Reading:
    """Blocks of `index_block_size` keys by their largest score; the newest blocks are always read.

    Source: `transformers` 5.24, models/minimax_m3_vl: `sparse_attention_config` overrides the plain fields; blocks
        count key slots, a query's own block its position // block, so that both differ under left padding.
    """
    count = fields.layers(default=60)
    older = fields.part("sparse_attention_config")
    names = {
        "index_block_size": ("sparse_block_size", 128, 1),
        "index_topk_blocks": ("sparse_topk_blocks", 16, 1),
        "index_local_blocks": ("sparse_local_block", 1, 0),
    }
    found = {
        name: older.maybe(legacy, least=least)
        if legacy in older
        else fields.whole(name, default=value, least=least)
        for name, (legacy, value, least) in names.items()
    }
    block, best, local = (int(value or 0) for value in found.values())
    often = older.wholes("sparse_attention_freq")
    sparse = "minimax_m3_sparse"
    kinds = fields.kinds(
        count,
        (sparse, FULL),
        lambda: [sparse if flag else FULL for flag in often] if often is not None else [FULL] * count,
        assumed=often is None,
    )
    if len(kinds) < count:
        raise older.refused("sparse_attention_freq", f"{len(kinds)} flags", f"one per layer, {count} in all")
    fold = Fold("selection", WindowGrid(block, block), "slot", block * best, tail=local > 0)
    layers = tuple(Layer(i, kind, (fold,) if kind == sparse else ()) for i, kind in enumerate(kinds))
    notes = [
        "blocks count cache slots and queries count positions: left padding sets them against each other"
    ]
    if not local:
        notes.append("index_local_blocks is 0: a query's own block is read only if it is chosen")
    without = "" if sparse in kinds else "no layer is sparse: full attention"
    return Reading(layers, without, tuple(notes) if sparse in kinds else ())


def _plain(kinds: list[str]) -> tuple[Layer, ...]:
    return tuple(Layer(i, FULL if kind == INDEXED else kind) for i, kind in enumerate(kinds))


def _with(kinds: list[str], fold: Fold | None) -> tuple[Layer, ...]:
    return tuple(
        Layer(i, kind, (fold,) if fold is not None and kind == INDEXED else ())
        for i, kind in enumerate(kinds)
    )


def _linear_note(kinds: list[str]) -> str:
    linear = kinds.count(LINEAR)
    return f"{linear} of {len(kinds)} layers are recurrent and have no grid; contents are nowhere pooled"
