"""The streaming cache of one attention layer: entries ready to be read, and the uncompressed tokens still needed.

Shape suffixes as in `compressors.base`. Token indices count slots of the batch, left pads included; the
positions of rotary embeddings and the grids begin at each row's first real token.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin

from ..compressors import AbstractCompressor, Entries
from ..errors import UsageError
from ..grid import NEVER

HIDDEN = -2
"""`visible_from` of a left pad, which no other token ever reads."""
TENSORS = ("keys", "values", "index", "last_token", "raw_key", "raw_value", "state", "visible_from")

Rotate = Callable[[Tensor, Tensor], Tensor]
"""(x [B, H, N, D], positions [B, H, N], leading ones allowed) → x with rotary embedding."""


class EntryLayer(CacheLayerMixin):
    """What one layer keeps of the tokens read so far.

    Attributes:
        keys, values: entries, keys rotated, [B, H, N, D]; no values where key and value are shared.
        index: the indexer's keys of the entries, rotated, if there is an indexer.
        last_token: index of each entry's last token, [B, H, N] with ones where rows or heads agree.
        raw_key, raw_value, visible_from: tokens from `start` on, before rotation; the others are read through
            entries alone.
        state: the compressor's states from `resume` on, from where windows are incomplete.
        seen: tokens read so far.
        pads: left pads of each row; empty where there are none.
        record_past: keep everything that `crop` may ask for.
    """

    is_croppable = True

    def __init__(self) -> None:
        super().__init__()
        self.index: Tensor | None = None
        self.last_token: Tensor | None = None
        self.raw_key: Tensor | None = None
        self.raw_value: Tensor | None = None
        self.visible_from: Tensor | None = None
        self.state: Tensor | None = None
        self.seen = self.start = self.resume = self.tail = 0
        self.pads: tuple[int, ...] = ()
        self.record_past = False
        self._compressor: weakref.ref[AbstractCompressor] | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the first tokens bring their own shapes."""
        self.is_initialized = True

    def update(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Only our attention can use this layer."""
        raise UsageError("this cache belongs to a model with a compressed KV cache; give others their own")

    def read(
        self,
        compressor: AbstractCompressor,
        token: tuple[Tensor, Tensor, Tensor],
        rotate: Rotate,
        pads: tuple[int, ...],
        tail: int,
    ) -> None:
        """Take in new tokens and compress the windows that they complete.

        Args:
            compressor: of the attention layer.
            token: key and value before rotation, and state; [B, H, T, …] each. The value may be the key.
            rotate: the rotary embedding.
            pads: left pads of each row, or nothing.
            tail: the newest tokens that are read uncompressed, whether in an entry or not.
        """
        self.is_initialized = True
        if self._compressor is not None and self._compressor() is not compressor:
            raise UsageError("the cache holds tokens of another model; begin with a cache of its own")
        if self.seen and self.pads != pads:
            raise UsageError(f"the cache was begun with left pads {self.pads}, now there are {pads}")
        self._compressor, self.tail = weakref.ref(compressor), tail
        before, self.pads = self.seen, pads
        self._append(*token)
        if compressor.idle:
            return
        if not pads and compressor.complete(before) == compressor.complete(self.seen) is not None:
            return
        fresh = [self._compress(compressor, rows, begin, before) for rows, begin in self._resumes(before)]
        entries = [(rows, part) for rows, part in fresh if part is not None]
        if entries:
            self._keep(_merged(entries, len(token[0])), rotate)

    def _append(self, key_BHTD: Tensor, value_BHTD: Tensor, state_BHTG: Tensor) -> None:
        new, device = key_BHTD.shape[2], key_BHTD.device
        visible_from_BHT = torch.full((1, 1, new), NEVER, device=device)
        if self.pads:
            token_T = torch.arange(self.seen, self.seen + new, device=device)
            pad_B11 = torch.tensor(self.pads, device=device)[:, None, None]
            visible_from_BHT = visible_from_BHT.masked_fill(token_T < pad_B11, HIDDEN)
        self.raw_key = _joined(self.raw_key, key_BHTD)
        self.raw_value = None if value_BHTD is key_BHTD else _joined(self.raw_value, value_BHTD)
        self.state = _joined(self.state, state_BHTG)
        if self.visible_from is not None:
            rows, heads = self.visible_from.shape[:2]
            visible_from_BHT = visible_from_BHT.expand(max(rows, len(visible_from_BHT)), heads, -1)
        self.visible_from = _joined(self.visible_from, visible_from_BHT)
        self.seen += new

    def _resumes(self, tokens: int) -> Iterator[tuple[list[int] | None, int]]:
        """Rows (None: all) and from where they read on after the first `tokens` tokens."""
        compressor = self._compressor() if self._compressor else None
        assert compressor is not None  # the cache lives no longer than its model
        if not self.pads and (settled := compressor.settled(tokens)) is not None:
            yield None, settled
            return
        assert self.raw_key is not None
        rows: dict[tuple[int, int], list[int]] = {}
        for row, begin in enumerate(self._row_resumes(compressor, tokens, len(self.raw_key))):
            rows.setdefault((begin, self.pads[row] if self.pads else 0), []).append(row)
        yield from ((members, begin) for (begin, _), members in rows.items())

    def _row_resumes(self, compressor: AbstractCompressor, tokens: int, rows: int) -> Iterator[int]:
        last = [-1] * rows
        if compressor.settled(0) is None and self.last_token is not None and self.last_token.shape[2]:
            past_BHN = self.last_token.masked_fill(self.last_token >= tokens, -1)
            last = past_BHN.amax(2).amin(1).expand(rows).tolist()
        for pad, closed in zip(self.pads or (0,) * rows, last, strict=True):
            settled = compressor.settled(max(0, tokens - pad))
            yield pad + settled if settled is not None else max(pad, closed + 1)

    def _compress(
        self, compressor: AbstractCompressor, rows: list[int] | None, begin: int, before: int
    ) -> tuple[list[int] | None, Entries | None]:
        """New entries of these rows, and what their windows say about the tokens."""
        assert self.raw_key is not None
        assert self.state is not None
        assert self.visible_from is not None
        if begin >= self.seen:
            return rows, None
        key_BHTD = _rows(self.raw_key, rows)[:, :, begin - self.start :]
        value_BHTD = key_BHTD
        if self.raw_value is not None:
            value_BHTD = _rows(self.raw_value, rows)[:, :, begin - self.start :]
        entries = compressor.entries(
            key_BHTD, value_BHTD, _rows(self.state, rows)[:, :, begin - self.resume :]
        )
        self._note_visible(rows, begin, _moved(entries.visible_from_BHT, begin))
        last_token_BHN = _moved(entries.last_token_BHN, begin)
        pad = self.pads[rows[0]] if self.pads and rows else 0
        entries = replace(
            entries, last_token_BHN=last_token_BHN, position_BHN=entries.position_BHN + (begin - pad)
        )
        old_BHN = last_token_BHN < before
        return rows, _without(entries, old_BHN) if bool(old_BHN.any()) else entries

    def _note_visible(self, rows: list[int] | None, begin: int, visible_from_BHT: Tensor) -> None:
        """Note from when on tokens are read through entries; what was known earlier stands."""
        assert self.visible_from is not None
        assert self.raw_key is not None
        members = len(visible_from_BHT) if rows is None else len(self.raw_key)
        heads = max(self.visible_from.shape[1], visible_from_BHT.shape[1])
        known_BHT = self.visible_from.expand(max(members, len(self.visible_from)), heads, -1).clone()
        place = slice(None) if rows is None else rows, slice(None), slice(begin - self.start, None)
        known_BHT[place] = torch.minimum(known_BHT[place], visible_from_BHT)
        self.visible_from = known_BHT

    def _keep(self, entries: Entries, rotate: Rotate) -> None:
        """Append entries; where rows or heads have different numbers of them, close the gaps."""
        shared = entries.value_BHND is entries.key_BHND
        key_BHND = rotate(entries.key_BHND, entries.position_BHN)
        index_BHND = entries.index_BHND
        if index_BHND is not None:
            index_BHND = rotate(index_BHND, entries.position_BHN)
        last_token_BHN = entries.last_token_BHN.int()
        if self.keys is None or self.last_token is None:
            self.last_token = last_token_BHN
        else:
            rows = max(len(self.last_token), len(last_token_BHN))
            heads = max(self.last_token.shape[1], last_token_BHN.shape[1])
            both = [x.expand(rows, heads, -1) for x in (self.last_token, last_token_BHN)]
            self.last_token = torch.cat(both, dim=2)
        self.keys = _joined(self.keys, key_BHND)
        self.values = None if shared else _joined(self.values, entries.value_BHND)
        self.index = None if index_BHND is None else _joined(self.index, index_BHND)
        if self.last_token.shape[:2] != (1, 1):
            self._order_entries()

    def _order_entries(self) -> None:
        """Entries of each row and head in the order of `last_token`, slots without entry last."""
        assert self.keys is not None
        assert self.last_token is not None
        held = int((self.last_token < NEVER).sum(-1).max())
        if held == self.last_token.shape[2] and bool((self.last_token.diff(dim=2) >= 0).all()):
            return
        order_BHN = self.last_token.argsort(dim=2, stable=True)[:, :, :held]
        values = self.keys if self.values is None else self.values
        sorted_ = Entries(
            self.keys, values, self.last_token, self.last_token, self.last_token, self.index
        ).taken(order_BHN)
        self.keys, self.last_token, self.index = sorted_.key_BHND, sorted_.last_token_BHN, sorted_.index_BHND
        self.values = None if self.values is None else sorted_.value_BHND

    def forget(self) -> None:
        """Drop the uncompressed tokens and states that no later token needs."""
        if self.record_past:
            return
        resume = min(begin for _, begin in self._resumes(self.seen))
        start = max(self.start, min(resume, self.seen + 1 - self.tail))
        resume = max(self.resume, resume)
        for name in ("raw_key", "raw_value", "visible_from"):
            self._cut(name, start - self.start)
        self._cut("state", resume - self.resume)
        self.start, self.resume = start, resume

    def _cut(self, name: str, tokens: int) -> None:
        tensor = getattr(self, name)
        if tokens and tensor is not None:
            setattr(self, name, tensor[:, :, tokens:].clone())  # a view would keep the whole in memory

    def activate_past_recording(self) -> None:
        """From now on forget nothing, so that `crop` can go back to here."""
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens, as if they had never been read.

        Args:
            tokens_to_remove: minus their number, as everywhere in `transformers`.

        Raises:
            UsageError: if what was dropped meanwhile is needed again.
        """
        if tokens_to_remove > 0:
            raise UsageError(f"crop takes minus the number of tokens to remove; got {tokens_to_remove}")
        kept = self.seen + tokens_to_remove
        if tokens_to_remove == 0 or not self.is_initialized:
            return
        if kept < 0:
            raise UsageError(f"cannot remove {-tokens_to_remove} of {self.seen} tokens")
        resume = min(begin for _, begin in self._resumes(kept))
        if resume < self.resume or min(resume, max(0, kept + 1 - self.tail)) < self.start:
            raise UsageError(
                f"cannot crop to {kept} of {self.seen} tokens: the windows at the cut were compressed and their "
                "tokens dropped; call activate_past_recording() on the cache before the tokens to be undone"
            )
        for name, start in (("raw_key", self.start), ("raw_value", self.start), ("state", self.resume)):
            tensor = getattr(self, name)
            setattr(self, name, None if tensor is None else tensor[:, :, : kept - start])
        assert self.visible_from is not None
        known_BHT = self.visible_from[:, :, : kept - self.start]
        self.visible_from = torch.where((known_BHT >= kept) & (known_BHT < NEVER), NEVER, known_BHT)
        if self.last_token is not None and self.keys is not None:
            self.last_token = self.last_token.masked_fill(self.last_token >= kept, NEVER)
            self._order_entries()
        self.seen = kept

    def get_seq_length(self) -> int:
        """Tokens read so far, compressed or not."""
        return self.seen

    def get_max_length(self) -> int:
        """There is no maximum."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The mask that `transformers` prepares covers all tokens; our attention makes its own."""
        return self.seen + query_length, 0

    def nbytes(self) -> int:
        """Bytes of everything that is kept."""
        held = [getattr(self, name) for name in TENSORS]
        return sum(x.numel() * x.element_size() for x in held if x is not None)

    def reset(self) -> None:
        """Forget everything but whether to record."""
        recording = self.record_past
        self.__init__()  # type: ignore[misc]  # the same object, as new
        self.record_past = recording

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep, repeat or drop rows: row i becomes the old row beam_idx[i]."""
        batch = 0 if self.raw_key is None else len(self.raw_key)
        for name in TENSORS:
            tensor = getattr(self, name)
            agreed = name in ("last_token", "visible_from") and not self.pads and batch == 1
            if tensor is not None and len(tensor) == batch and not agreed:
                setattr(self, name, tensor.index_select(0, beam_idx.to(tensor.device)))
        pads = tuple(self.pads[row] for row in beam_idx.tolist()) if self.pads else ()
        self.pads = pads if any(pads) else ()

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        if self.raw_key is not None:
            self.reorder_cache(torch.arange(len(self.raw_key)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows that are named."""
        self.reorder_cache(indices)


class EntryCache(Cache):
    """The cache of a model with a compressed KV cache, one `EntryLayer` per layer."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(layers=[EntryLayer() for _ in range(config.num_hidden_layers)])


def entry_layer(cache: Cache, index: int) -> EntryLayer:
    """The layer of a `transformers` cache that belongs to an attention layer, exchanged at first use.

    Raises:
        UsageError: if the cache already holds tokens of another model.
    """
    while len(cache.layers) <= index:
        cache.layers.append(EntryLayer())
    layer: Any = cache.layers[index]
    if not isinstance(layer, EntryLayer):
        if layer.get_seq_length():
            raise UsageError(f"layer {index} of the cache holds tokens of a model without compression")
        layer = cache.layers[index] = EntryLayer()
    found: EntryLayer = layer
    return found


def _joined(old: Tensor | None, new: Tensor) -> Tensor:
    return new if old is None else torch.cat([old, new], dim=2)


def _rows(x: Tensor, rows: list[int] | None) -> Tensor:
    return x if rows is None else x[rows]


def _moved(token: Tensor, start: int) -> Tensor:
    """Indices of tokens that begin at `start`, where they were counted from 0."""
    return torch.where(token == NEVER, NEVER, token + start)


def _without(entries: Entries, old_BHN: Tensor) -> Entries:
    """Drop old entries of each row and head; the slots of those with fewer new ones come last."""
    last_token_BHN = entries.last_token_BHN.masked_fill(old_BHN, NEVER)
    most = int((last_token_BHN < NEVER).sum(-1).max())
    order_BHN = last_token_BHN.argsort(dim=2, stable=True)[:, :, :most]
    return replace(entries, last_token_BHN=last_token_BHN).taken(order_BHN)


def _merged(parts: Sequence[tuple[list[int] | None, Entries]], batch: int) -> Entries:
    """One set of entries for all rows; rows with fewer of them, or none, get slots that are never visible."""
    if parts[0][0] is None:
        return parts[0][1]
    heads = max(entries.last_token_BHN.shape[1] for _, entries in parts)
    most = max(entries.last_token_BHN.shape[2] for _, entries in parts)

    def merge(name: str, fill: int) -> Tensor:
        first = getattr(parts[0][1], name)
        wide = heads if first.ndim == 3 else first.shape[1]
        whole = first.new_full((batch, wide, most, *first.shape[3:]), fill)
        for rows, entries in parts:
            x = getattr(entries, name)
            whole[rows, :, : x.shape[2]] = x.expand(len(rows or ()), wide, *x.shape[2:])
        return whole

    first = parts[0][1]
    key_BHND = merge("key_BHND", 0)
    return Entries(
        key_BHND,
        key_BHND if first.value_BHND is first.key_BHND else merge("value_BHND", 0),
        merge("position_BHN", 0),
        merge("last_token_BHN", NEVER),
        first.visible_from_BHT,
        None if first.index_BHND is None else merge("index_BHND", 0),
    )
