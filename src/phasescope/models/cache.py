"""The streaming cache of one attention layer: entries ready to be read, and the raw tokens still needed.

Shape suffixes as in `compressors.base`; P payload channels (key, value and state side by side).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin


class EntryLayer(CacheLayerMixin):
    """What one layer keeps of the tokens read so far.

    Attributes:
        keys, values: entries, keys already rotated, [B, H, N, D].
        closes_HN: index of each entry's last token.
        raw_BHTP: payload of the tokens from `start` on; those before are read through entries alone.
        start: position of the first token that is still raw.
        seen: tokens read so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closes_HN: Tensor | None = None
        self.raw_BHTP: Tensor | None = None
        self.start = 0
        self.seen = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the first tokens bring their own shapes."""
        self.is_initialized = True

    def update(self, key_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append payloads; returns all raw payloads that are kept, twice, as the interface wants a pair."""
        self.is_initialized = True
        self.seen += key_states.shape[2]
        self.raw_BHTP = key_states if self.raw_BHTP is None else torch.cat([self.raw_BHTP, key_states], dim=2)
        return self.raw_BHTP, self.raw_BHTP

    def fold(self, key_BHND: Tensor, value_BHND: Tensor, closes_HN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Append entries, their keys rotated; returns keys, values and closes of all of them."""
        if self.keys is None or self.values is None or self.closes_HN is None:
            self.keys, self.values, self.closes_HN = key_BHND, value_BHND, closes_HN
        elif closes_HN.shape[1]:
            self.keys = torch.cat([self.keys, key_BHND], dim=2)
            self.values = torch.cat([self.values, value_BHND], dim=2)
            self.closes_HN = torch.cat([self.closes_HN, closes_HN], dim=1)
        return self.keys, self.values, self.closes_HN

    def drop(self, start: int) -> None:
        """Forget the raw tokens before `start`."""
        if start > self.start:
            assert self.raw_BHTP is not None
            self.raw_BHTP = self.raw_BHTP[:, :, start - self.start :].contiguous()
            self.start = start

    def get_seq_length(self) -> int:
        """Tokens read so far, folded or not."""
        return self.seen

    def get_max_length(self) -> int:
        """There is no maximum."""
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The mask that `transformers` prepares covers all tokens; our attention makes its own."""
        return self.seen + query_length, 0

    def reset(self) -> None:
        """Forget everything."""
        self.__init__()  # type: ignore[misc]  # the same object, as new

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep, repeat or drop rows: row i becomes the old row beam_idx[i]."""
        for name in ("keys", "values", "raw_BHTP"):
            tensor = getattr(self, name)
            if tensor is not None:
                setattr(self, name, tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        assert self.raw_BHTP is not None
        self.reorder_cache(torch.arange(len(self.raw_BHTP)).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the rows that are named."""
        self.reorder_cache(indices)


def entry_layer(cache: Cache, index: int) -> EntryLayer:
    """The layer of a `transformers` cache that belongs to an attention layer, exchanged at first use."""
    while len(cache.layers) <= index:
        cache.layers.append(EntryLayer())
    layer = cache.layers[index]
    if not isinstance(layer, EntryLayer):
        layer = cache.layers[index] = EntryLayer()
    return layer
