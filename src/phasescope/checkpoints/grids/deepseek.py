"""DeepSeek-V4 (CSA and HCA) and DeepSeek-V4.1 (CSA2): content pooled into entries beside a sliding window."""

from __future__ import annotations

from ...grid import WindowGrid
from .base import Fold, Layer, Reading
from .fields import Fields

CSA, HCA, SLIDING = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"


def read_v4(fields: Fields) -> Reading:
    """Layers of CSA (W = 2S), HCA (W = S) and of the sliding window alone.

    Entries count cache slots, not positions, so left padding moves the grid. They are read from the first complete
    window on, beside the uncompressed tokens of the sliding window; up to `sliding_window` tokens each token is also
    read uncompressed.

    Source: `transformers` 5.24, models/deepseek_v4: configuration (the folding of `compress_ratios`,
        `compress_rate_csa`, `compress_rate_hca` into `layer_types` and `compress_rates`), modeling
        (`entry_indices >= (position_ids + 1) // compress_rate` is the only thing that hides an entry).
    Differs: that nothing depends on the grid up to the sliding window is said of retrieval only: entries inside the
        window are read too, so that logits may move from the first window on.
    """
    count = fields.layers(default=43)
    rates = fields.part("compress_rates")
    csa = fields.maybe("compress_rate_csa") or rates.whole(CSA, default=4)
    hca = fields.maybe("compress_rate_hca") or rates.whole(HCA, default=128)
    fields.assumed += [f"compress_rates.{text}" for text in rates.assumed]
    window = fields.whole("sliding_window", default=128)
    topk = fields.whole("index_topk", default=512)
    legacy = "compress_ratios" in fields
    kinds = fields.kinds(
        count, (SLIDING, CSA, HCA), lambda: _v4_kinds(fields, count, csa, hca), assumed=not legacy
    )
    folds = {
        SLIDING: (),
        CSA: (_entries(WindowGrid(2 * csa, csa, csa), window),),
        HCA: (_entries(WindowGrid(hca, hca), window),),
    }
    notes = [
        "entries are read from the first complete window on, beside the uncompressed tokens: within the reach every "
        "token is also read uncompressed, but logits may already move with the phase",
        "the grid counts cache slots: left padding moves it, so ask in batches of equal length",
    ]
    if CSA in kinds:
        notes.append(
            f"CSA layers read the {topk:,} best entries of an indexer: all of them up to {topk * csa:,} tokens"
        )
    draft = len(fields.wholes("compress_ratios") or kinds) - count
    if draft > 0:
        notes.append(f"{draft} further compress_ratios describe layers for drafting and are left out")
    return Reading(
        tuple(Layer(i, kind, folds[kind]) for i, kind in enumerate(kinds)), _without(kinds), tuple(notes)
    )


def _entries(grid: WindowGrid, window: int) -> Fold:
    """Pooled with a learned gate, read beside the uncompressed tokens of a sliding window."""
    return Fold(
        "pooled content", grid, "slot", window, exact=False, learned=True, tail=True, raw=window, bias=True
    )


def _v4_kinds(fields: Fields, count: int, csa: int, hca: int) -> list[str]:
    """From the older per-layer ratios, or DeepSeek-V4-Pro's schedule: two HCA layers, then HCA and CSA in turn."""
    ratios = fields.wholes("compress_ratios")
    if ratios is None:
        turns = [CSA if place % 2 else HCA for place in range(max(count - 2, 0))]
        return [HCA] * min(count, 2) + turns
    if len(ratios) < count:
        raise fields.refused("compress_ratios", f"{len(ratios)} ratios", f"one per layer, {count} in all")
    named = {0: SLIDING, 4: CSA, 128: HCA, csa: CSA, hca: HCA}
    for place, ratio in enumerate(ratios[:count]):
        if ratio not in named:
            raise fields.refused(f"compress_ratios[{place}]", ratio, f"one of {sorted(named)}")
    return [named[ratio] for ratio in ratios]


def _without(kinds: list[str]) -> str:
    return "" if {CSA, HCA} & set(kinds) else "every layer reads a sliding window token by token"


def read_v41(fields: Fields) -> Reading:
    """Ratio 0 reads the window alone, ratio 1 every token's own entry, ratio r > 1 pools r tokens.

    Only the layers of `kv_source_layer_ids` make entries; the others read those of the latest such layer before
    them. After `candidate_source_layer_id` an index looks only into the best blocks of that layer's entries, a
    second, coarser grid.

    Source: public ports of DeepSeek-V4.1-Flash (vllm-ascend and others), which agree on the text config's fields
        and on `layers 0–1: 0, 2–19: 2, 20–39: 1`; they read a gate but no position bias in the ratio-2 compressors.
    Differs: no code of `transformers` 5.24 has this family; the class default of no field is known, so that a
        missing one is refused.
    """
    count = fields.layers(default=40)
    ratios = fields.wholes("compress_ratios")
    if ratios is None or len(ratios) < count:
        raise fields.refused(
            "compress_ratios", ratios and f"{len(ratios)} ratios", f"one per layer, {count} in all"
        )
    window = fields.whole("sliding_window", default=128)
    blocks = _candidate_blocks(fields, ratios)
    sources = fields.wholes("index_source_layer_ids", "index_source_layers") or list(range(count))
    candidates = fields.maybe("candidate_source_layer_id", "candidate_source_layer", least=0)
    layers = []
    kinds = {0: "window only", 1: "entries of one token"}
    for index, ratio in enumerate(ratios[:count]):
        folds: tuple[Fold, ...] = ()
        if ratio > 1:
            folds = (_entries(WindowGrid(ratio, ratio), window),)
        owner = max((source for source in sources if source <= index), default=-1)
        if blocks is not None and ratio and candidates is not None and owner > candidates:
            folds = (*folds, blocks)
        layers.append(Layer(index, kinds.get(ratio, f"pooled by {ratio}"), folds))
    notes = _v41_notes(fields)
    without = "" if any(layer.folds for layer in layers) else "no layer pools more than one token"
    return Reading(tuple(layers), without, notes)


def _candidate_blocks(fields: Fields, ratios: list[int]) -> Fold | None:
    """The blocks of entries in which later layers look, counted in tokens."""
    size = fields.maybe("candidate_block_size")
    source = fields.maybe("candidate_source_layer_id", "candidate_source_layer", least=0)
    best = fields.maybe("candidate_topk_blocks")
    if size is None or source is None or best is None:
        return None
    if source >= len(ratios):
        raise fields.refused("candidate_source_layer_id", source, f"a layer, 0 to {len(ratios) - 1}")
    stride = size * max(1, ratios[source])
    return Fold("selection", WindowGrid(stride, stride), "slot", stride * best)


def _v41_notes(fields: Fields) -> tuple[str, ...]:
    notes = ["entries of ratio 1 hold one token each and have no phase"]
    owners = fields.wholes("kv_source_layer_ids", "kv_source_layers")
    if owners:
        notes.append(
            f"only layers {', '.join(map(str, owners))} make entries; the layers after each read the same ones, so "
            "that a phase effect is shared by a group of layers"
        )
    return tuple(notes)
