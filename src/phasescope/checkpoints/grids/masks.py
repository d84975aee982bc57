"""Masks that end at block borders: no content is pooled, but who may read whom depends on the grid."""

from __future__ import annotations

from ...grid import WindowGrid
from .base import Fold, Hole, Layer, Reading
from .fields import Fields

CHUNKED, FULL = "chunked_attention", "full_attention"


def read_llama4(fields: Fields) -> Reading:
    """Layers with rotary embedding read only the query's own chunk of `attention_chunk_size` tokens.

    Source: `transformers` 5.24, models/llama4 and `chunked_overlay` of masking_utils, which counts from the first
        real token.
    """
    count = fields.layers(default=48)
    chunk = fields.maybe("attention_chunk_size")
    if chunk is None and "attention_chunk_size" not in fields.values:
        chunk = fields.whole("attention_chunk_size", default=8192)
    rotary = fields.wholes("no_rope_layers")
    if not rotary:
        every = fields.whole("no_rope_layer_interval", default=4)
        rotary = [int((place + 1) % every != 0) for place in range(count)]
    kinds = fields.kinds(
        count,
        (CHUNKED, FULL),
        lambda: [CHUNKED if flag and chunk is not None else FULL for flag in rotary],
        assumed=False,
    )
    if len(kinds) < count:
        raise fields.refused("no_rope_layers", f"{len(kinds)} flags", f"one per layer, {count} in all")
    if CHUNKED not in kinds or chunk is None:
        return Reading(tuple(Layer(i, FULL) for i in range(count)), "no layer is chunked: full attention")
    fold = Fold("mask", WindowGrid(chunk, chunk), "first real token", chunk, tail=True)
    layers = tuple(Layer(i, kind, (fold,) if kind == CHUNKED else ()) for i, kind in enumerate(kinds))
    holes: tuple[Hole, ...] = ()
    if FULL not in kinds:
        holes = (
            Hole(tuple(range(count)), f"no layer reads across the borders of its chunk of {chunk:,} tokens"),
        )
    note = (
        "a query just behind a border reads almost nothing in the chunked layers; the others read everything"
    )
    return Reading(layers, "", (note,), holes)


def read_big_bird(fields: Fields) -> Reading:
    """Block-sparse encoder attention: global, neighbouring and random blocks.

    Source: `transformers` 5.24, models/big_bird and bigbird_pegasus: up to (5 + 2 · random blocks) · block size tokens
        the model switches to full attention, and so does a decoder with a cache.
    """
    encoder = fields.values.get("model_type") == "bigbird_pegasus"
    count = fields.layers(*(("encoder_layers", 16) if encoder else ("num_hidden_layers", 12)))
    kind = fields.word("attention_type", default="block_sparse", known=("block_sparse", "original_full"))
    if kind == "original_full":
        return Reading((), "attention_type is original_full: full attention")
    block = fields.whole("block_size", default=64)
    random = fields.whole("num_random_blocks", default=3, least=0)
    fold = Fold("mask", WindowGrid(block, block), "slot", (5 + 2 * random) * block, tail=True)
    notes = (
        "inputs are padded to whole blocks; random blocks are drawn from a seed, so that they too move with the length",
        "a decoder with a cache falls back to full attention, and the encoder stays there once it met a short input",
    )
    return Reading(tuple(Layer(i, kind, (fold,)) for i in range(count)), "", notes)


def read_pegasus_x(fields: Fields) -> Reading:
    """Encoder tokens read their own block, and global tokens; odd layers move the blocks by half of one.

    Source: `transformers` 5.24, models/pegasus_x: `stagger_blocks_this_layer = i % 2 == 1 and stagger_local_blocks`
        puts half a block of padding in front, so that window 0 of a staggered layer holds half a block.
    """
    count = fields.layers("encoder_layers", default=16)
    block = fields.whole("block_size", default=512)
    stagger = fields.flag("stagger_local_blocks", default=True)
    if stagger and block % 2:
        raise fields.refused("block_size", block, "even, as stagger_local_blocks is true")
    straight = ("block_local", Fold("mask", WindowGrid(block, block), "slot", block, tail=True))
    half = Fold("mask", WindowGrid(block, block, block // 2), "slot", block // 2, tail=True)
    odd = ("block_local, staggered", half) if stagger else straight
    kinds = [odd if i % 2 else straight for i in range(count)]
    layers = tuple(Layer(i, kind, (fold,)) for i, (kind, fold) in enumerate(kinds))
    return Reading(layers, "", ("encoder only; the decoder reads the encoder's output without a grid",))


def read_reformer(fields: Fields) -> Reading:
    """Local layers read their chunk and its neighbours; LSH layers chunk tokens in the order of their hashes.

    Source: `transformers` 5.24, models/reformer: up to one chunk of tokens a layer is full attention.
    """
    kinds = fields.values.get("attn_layers")
    if kinds is None:
        fields.assumed.append("attn_layers = local and lsh in turn, 6 layers")
        kinds = ["local", "lsh"] * 3
    if not isinstance(kinds, list | tuple) or not kinds or not set(map(str, kinds)) <= {"local", "lsh"}:
        raise fields.refused("attn_layers", kinds, "a list of 'local' and 'lsh'")
    local = fields.whole("local_attn_chunk_length", default=64)
    hashed = fields.whole("lsh_attn_chunk_length", default=64)
    folds = {
        "local": Fold("mask", WindowGrid(local, local), "slot", local, tail=True),
        "lsh": Fold("mask", None, "content", hashed),
    }
    note = "LSH layers sort tokens by hash before they cut them into chunks: their grid follows content, not position"
    layers = tuple(Layer(i, kind, (folds[kind],)) for i, kind in enumerate(kinds))
    return Reading(layers, "", (note,) if "lsh" in kinds else ())
