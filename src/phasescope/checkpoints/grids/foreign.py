"""Families whose code travels with the checkpoint or lives in a package of its own, outside `transformers`."""

from __future__ import annotations

from ...grid import WindowGrid
from .base import Fold, Layer, Reading
from .fields import Fields

DECODER_TYPES = ("llama", "mistral", "phi3", "qwen2", "qwen3")


def read_nsa(fields: Fields) -> Reading:
    """Native sparse attention: mean-pooled blocks, the best of the same blocks, and a sliding window, three gates.

    Source: arXiv 2502.11089; fla-org/flash-linear-attention, fla/models/nsa (`block_size` serves both branches).
    Differs: the paper's overlapping windows (32 every 16) and learned pooling are not in that code.
    """
    count = fields.layers(default=24)
    block, best = fields.whole("block_size", default=64), fields.whole("block_counts", default=16)
    window = fields.whole("window_size", default=512, least=0)
    grid, reach = WindowGrid(block, block), max(window, block * best)
    folds = (
        Fold("pooled content", grid, "slot", reach, exact=False, tail=True),
        Fold("selection", grid, "slot", block * best, tail=True),
    )
    notes = ("the pooled blocks have a gate of their own: they are read from the first complete block on",)
    return Reading(tuple(Layer(i, "nsa", folds) for i in range(count)), "", notes)


def read_moba(fields: Fields) -> Reading:
    """Mixture of block attention: the chunks whose mean key fits best, and always the query's own.

    Source: arXiv 2502.13189; fla-org/flash-linear-attention, fla/models/moba.
    """
    count = fields.layers(default=24)
    chunk, best = fields.whole("moba_chunk_size", default=256), fields.whole("moba_topk", default=4)
    fold = Fold("selection", WindowGrid(chunk, chunk), "slot", chunk * best, tail=True)
    note = "some implementations decode with full attention: then only the prefill is on the grid"
    return Reading(tuple(Layer(i, "moba", (fold,)) for i in range(count)), "", (note,))


def read_minicpm(fields: Fields) -> Reading:
    """InfLLM-v2: blocks chosen by keys that are averaged over overlapping windows.

    Source: OpenBMB/MiniCPM, README of MiniCPM4: `sparse_config`; up to `dense_len` tokens attention is full.
        MiniCPM-SALA mixes such layers (`minicpm4` of `mixer_types`) with linear attention.
    """
    count = fields.layers(default=32)
    sparse = fields.part("sparse_config")
    if not sparse.values:
        return Reading(
            (), "no sparse_config: full attention (MiniCPM4 is sparse only where that field is added)"
        )
    size, stride = sparse.whole("kernel_size", default=32), sparse.whole("kernel_stride", default=16)
    block = sparse.whole("block_size", default=64)
    dense = sparse.maybe("dense_len", least=-1)
    best = sparse.whole("topk", default=64)
    window = sparse.whole("window_size", default=2048, least=0)
    fields.assumed += [f"sparse_config.{text}" for text in sparse.assumed]
    reach = max(dense or 0, block * best)
    folds = (
        Fold("selection", WindowGrid(size, stride), "slot", reach, tail=True),
        Fold("selection", WindowGrid(block, block), "slot", reach, tail=True),
    )
    mixers = fields.kinds(
        count,
        ("minicpm4", "lightning-attn"),
        lambda: ["minicpm4"] * count,
        name="mixer_types",
        assumed=False,
    )
    layers = tuple(Layer(i, kind, folds if kind == "minicpm4" else ()) for i, kind in enumerate(mixers))
    note = f"the newest {window:,} tokens and the first blocks are always read; contents are nowhere pooled"
    return Reading(layers, "" if "minicpm4" in mixers else "every layer is linear attention", (note,))


def read_seerattention(fields: Fields) -> Reading:
    """A learned gate picks blocks of keys; with a threshold there is no budget below which all are read.

    Source: microsoft/SeerAttention, seer_attn/decode_sparse (`seerattn_*` fields on a Llama, Qwen or Phi config).
    """
    count = fields.layers(default=32)
    block = fields.whole("seerattn_gate_block_size", default=64)
    method = fields.word("seerattn_sparsity_method", default="threshold")
    budget = fields.whole("seerattn_token_budget", default=2048) if method == "token_budget" else None
    fold = Fold("selection", WindowGrid(block, block), "slot", budget, learned=True, tail=True)
    note = "only under SeerAttention's own code; transformers itself loads this checkpoint as a dense model"
    return Reading(tuple(Layer(i, "seerattention", (fold,)) for i in range(count)), "", (note,))


def read_landmark(fields: Fields) -> Reading:
    """A landmark token after every `mem_freq` tokens stands for its block, and blocks are retrieved by it.

    Source: epfml/landmark-attention, llama/llama_landmark_config.py.
    """
    count = fields.layers(default=32)
    every = fields.whole("mem_freq", default=50)
    fold = Fold("selection", WindowGrid(every, every), "position", None, learned=True, tail=True)
    note = f"counted in tokens of the text; with its landmark a block is {every + 1} positions long"
    return Reading(tuple(Layer(i, "landmark", (fold,)) for i in range(count)), "", (note,))


def read_beacon(fields: Fields) -> Reading:
    """Windows are condensed into beacon tokens, one for every `beacon_ratio` tokens of text.

    Source: FlagOpen/FlagEmbedding, research/Long_LLM/activation_beacon (`beacon_*` fields on a decoder's config).
        The ratio is drawn per step or instance in training (`beacon_ratio_mix`).
    """
    count = fields.layers(default=32)
    window = fields.whole("beacon_window", default=1024)
    stride = fields.whole("beacon_stride", default=window)
    if stride > window:
        raise fields.refused("beacon_stride", stride, f"at most beacon_window, {window}")
    ratio = fields.values.get("beacon_ratio")
    ratios = [ratio] if isinstance(ratio, int) else fields.wholes("beacon_ratio") or []
    grids = [WindowGrid(window, stride)]
    for place, one in enumerate(ratios):
        if isinstance(one, bool) or not 0 <= one <= window:
            raise fields.refused(f"beacon_ratio[{place}]", one, f"0 to beacon_window, {window}")
        grids += [WindowGrid(one, one)] if one > 1 else []
    folds = tuple(
        Fold("pooled content", grid, "slot", window, learned=True, tail=True) for grid in dict.fromkeys(grids)
    )
    notes = [
        "only under Activation Beacon's own code; transformers itself loads this checkpoint as a dense model",
        "the tokens of the unfinished window are read uncompressed; of finished ones only their beacons",
    ]
    if len(ratios) > 1:
        notes.append("which of the ratios is used depends on the length of the context (beacon_ratio_mix)")
    return Reading(tuple(Layer(i, "beacon", folds) for i in range(count)), "", tuple(notes))
