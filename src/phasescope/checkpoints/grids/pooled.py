"""Encoders and byte models whose tokens are pooled by position: sums, means, strided convolutions, patches."""

from __future__ import annotations

from ...grid import WindowGrid
from .base import Does, Fold, Hole, Layer, Reading
from .fields import Fields

MRA_BLOCK = 32


def read_longt5(fields: Fields) -> Reading:
    """Transient-global attention adds one normed sum per `global_block_size` tokens to a local band.

    Source: `transformers` 5.24, models/longt5: tokens after the last whole block join the block before.
    Differs: the default `encoder_attention_type`, `local`, is an exact band of ±`local_radius` tokens and has no
        grid, though it is computed in blocks.
    """
    count = fields.layers("num_layers", default=6)
    kind = fields.word("encoder_attention_type", default="local", known=("local", "transient-global"))
    if kind == "local":
        return Reading((), "encoder_attention_type is local: an exact band around each token")
    block, radius = fields.whole("global_block_size", default=16), fields.whole("local_radius", default=127)
    fold = Fold("pooled content", WindowGrid(block, block), "slot", radius + 1, exact=False, tail=True)
    note = "encoder only; the decoder reads the encoder's output without a grid"
    return Reading(tuple(Layer(i, kind, (fold,)) for i in range(count)), "", (note,))


def read_funnel(fields: Fields) -> Reading:
    """Block k of the encoder works on tokens pooled 2^k to one.

    With `separate_cls` the first token stays alone: window 0 holds it and nothing, windows then begin at token 1.

    Source: `transformers` 5.24, models/funnel: `pool_tensor` and `upsample`.
    """
    sizes = fields.wholes("block_sizes", least=1)
    if sizes is None:
        fields.assumed.append("block_sizes = 4, 4, 4")
        sizes = [4, 4, 4]
    if not sizes or len(sizes) > 20 or sum(sizes) > 4096:
        raise fields.refused("block_sizes", f"{len(sizes)} blocks", "a list of 1 to 20 sizes")
    kind = fields.word("pooling_type", default="mean", known=("mean", "max"))
    alone = fields.flag("separate_cls", default=True)
    cut = fields.flag("truncate_seq", default=True)
    layers: list[Layer] = []
    for place, size in enumerate(sizes):
        stride = 2**place
        grid = WindowGrid(stride, stride, stride - 1 if alone else 0)
        folds = () if place == 0 else (Fold("pooled content", grid, "slot", 2 if alone else 1, tail=True),)
        layers += [
            Layer(len(layers) + i, f"block {place}, {kind}" if place else "block 0", folds)
            for i in range(size)
        ]
    holes: tuple[Hole, ...] = ()
    pooled = tuple(layer.index for layer in layers if layer.folds)
    if alone and cut and pooled:
        holes = (Hole(pooled, "each pooling drops the last token (truncate_seq); set truncate_seq to false"),)
    notes = ("the decoder adds the unpooled output of block 0 back to the upsampled one",)
    return Reading(tuple(layers), "" if pooled else "one block: nothing is pooled", notes, holes)


def read_canine(fields: Fields) -> Reading:
    """Characters are read in local blocks, then a convolution of stride `downsampling_rate` makes molecules.

    Source: `transformers` 5.24, models/canine: the first character takes the first place, and the last molecule is
        dropped to keep the length.
    """
    count = fields.layers(default=12)
    rate = fields.whole("downsampling_rate", default=4)
    block = fields.whole("local_transformer_stride", default=128)
    local = Fold("mask", WindowGrid(block, block), "slot", block, tail=True)
    pooled = Fold("pooled content", WindowGrid(rate, rate), "slot", 0, exact=False, learned=True, tail=False)
    deep = tuple(Layer(1 + i, "molecules", (pooled,)) for i in range(count))
    layers = (Layer(0, "local characters", (local,)), *deep, Layer(count + 1, "characters from molecules"))
    hole = Hole(
        tuple(layer.index for layer in deep),
        f"the last {rate} to {2 * rate - 1} characters are in no molecule, as the first character takes a place; only "
        "the shallow layers read them",
    )
    return Reading(
        layers, "", ("layer 0 and the last are the shallow character layers around the encoder",), (hole,)
    )


def read_nystromformer(fields: Fields) -> Reading:
    """Landmarks are means of `segment_means_seq_len` / `num_landmarks` tokens.

    Source: `transformers` 5.24, models/nystromformer.
    Differs: where both numbers are equal, as by default, attention is full and there is no grid.
    """
    count = fields.layers(default=12)
    length = fields.whole("segment_means_seq_len", default=64)
    marks = fields.whole("num_landmarks", default=64)
    if length == marks:
        return Reading((), "num_landmarks equals segment_means_seq_len: full attention")
    if length % marks:
        raise fields.refused("segment_means_seq_len", length, f"a multiple of num_landmarks, {marks}")
    segment = length // marks
    fold = Fold("pooled content", WindowGrid(segment, segment), "slot", 0, exact=False)
    note = f"it reads inputs of exactly {length:,} tokens, padding included"
    return Reading(tuple(Layer(i, "nystrom", (fold,)) for i in range(count)), "", (note,))


def read_mra(fields: Fields) -> Reading:
    """Blocks of 32 tokens, a number in the code: the best pairs of blocks exactly, in `full` mode the rest by means.

    Source: `transformers` 5.24, models/mra: so many pairs are exact that all are up to the reach.
    Differs: without its CUDA kernel that code gives zeros in place of attention.
    """
    count = fields.layers(default=12)
    mode = fields.word("approx_mode", default="full", known=("full", "sparse"))
    blocks = fields.whole("max_position_embeddings", default=512) // MRA_BLOCK
    pairs = min(blocks * fields.whole("block_per_row", default=4), blocks**2)
    reach = MRA_BLOCK * int(pairs**0.5)
    does: Does = "pooled content" if mode == "full" else "selection"
    fold = Fold(does, WindowGrid(MRA_BLOCK, MRA_BLOCK), "slot", reach)
    note = "without its CUDA kernel, transformers gives zeros in place of this attention"
    return Reading(tuple(Layer(i, mode, (fold,)) for i in range(count)), "", (note,))


def read_blt(fields: Fields) -> Reading:
    """Bytes are pooled into patches that end where the next byte is hard to foresee.

    Source: `transformers` 5.24, models/blt: with `patching_mode` other than entropy, or without a patcher, every
        patch is one byte.
    """
    entropy = fields.word("patching_mode", default="entropy") == "entropy"
    if not entropy or not fields.flag("patch_in_forward", default=True):
        return Reading((), "every patch is one byte")
    count = fields.part("global_config").layers(default=25)
    fold = Fold("pooled content", None, "content", 0, exact=False, learned=True)
    longest = fields.maybe("max_patch_length")
    note = "patches end by entropy" + (f", at the latest after {longest} bytes" if longest else "")
    return Reading(tuple(Layer(i, "patches", (fold,)) for i in range(count)), "", (note,))
