"""The configuration of a Qwen3 model whose KV cache is compressed: one more field, `compression`."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from pydantic import Field
from transformers import Qwen3Config

from ..catalog import COMPRESSORS
from ..errors import UsageError
from ..grid import NEVER, WindowGrid
from ..records import Record

Shift = int | tuple[int, ...] | tuple[tuple[int, ...], ...]


WIDEST = 2**20
"""Tokens of the widest window, stride or tail window that is taken as meant."""


class Compression(Record):
    """How a model folds its KV cache.

    Attributes:
        compressor: a name in the compressor catalog.
        width: tokens per window.
        stride: tokens between window starts.
        shift: by how many tokens the grid is moved back: one number, one per layer, or one per layer and
            KV head.
        tail: the last n tokens are also read raw, pooled or not (0: only the tokens that no visible
            entry covers are read raw).
        binding: key and value are one tensor, rotated as a key and turned back at the output.
        rotary: share of each head's channels that is rotated, the last ones; 0 for no position embedding.
        sink: one more logit per query head in the softmax, with nothing to read.
        settings: further settings of the compressor by name.
    """

    compressor: str
    width: int = Field(ge=1, le=WIDEST)
    stride: int = Field(ge=1, le=WIDEST)
    shift: Shift = 0
    tail: int = Field(default=0, ge=0, le=WIDEST)
    binding: bool = False
    rotary: float = Field(default=1.0, ge=0, le=1)
    sink: bool = False
    settings: dict[str, Any] = Field(default_factory=dict)

    def grids(self, layers: int, heads: int) -> tuple[tuple[WindowGrid, ...], ...]:
        """The grid of every layer and KV head.

        Raises:
            UsageError: if the shifts do not fit the number of layers and heads.
        """
        by_layer = (self.shift,) * layers if isinstance(self.shift, int) else self.shift
        by_head = [(shift,) * heads if isinstance(shift, int) else shift for shift in by_layer]
        if len(by_head) != layers or any(len(shifts) != heads for shifts in by_head):
            raise UsageError(
                f"shift {self.shift} does not fit {layers} layers of {heads} KV heads; "
                "give one number, one per layer, or one list per layer with one per KV head"
            )
        return tuple(
            tuple(WindowGrid(self.width, self.stride, shift) for shift in shifts) for shifts in by_head
        )

    def check(self, layers: int, heads: int, hidden_size: int, head_dim: int) -> None:
        """Refuse what cannot be built, or would leave a token unread.

        Raises:
            UsageError: with what was given, what is allowed, and why.
            UnknownNameError: if no compressor has that name.
        """
        compressor = COMPRESSORS.load(self.compressor)
        known = [name for name, p in signature(compressor).parameters.items() if p.kind == p.KEYWORD_ONLY]
        if unknown := sorted(set(self.settings) - set(known)):
            raise UsageError(
                f"{self.compressor} has no setting {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
            )
        if compressor.binds and not self.binding:
            raise UsageError(f"{self.compressor} makes one tensor of key and value; set binding to true")
        if round(head_dim * self.rotary) % 2 or (self.rotary > 0 and round(head_dim * self.rotary) == 0):
            raise UsageError(
                f"rotary {self.rotary} of {head_dim} channels is {round(head_dim * self.rotary)}; "
                "rotated channels come in pairs, or rotary is 0"
            )
        grids = self.grids(layers, heads)
        if compressor.tail_only:
            hole = max(grid.longest_wait() for layer in grids for grid in layer)
            if hole > self.tail:
                raise UsageError(
                    f"coverage hole: {self.compressor} reads raw tokens in its tail of {self.tail} only, and on "
                    f"{grids[0][0]} a token may wait {hole} tokens for its entry; set tail to {hole} or more"
                    if hole < NEVER
                    else f"coverage hole: on {grids[0][0]} the tokens between windows are in no entry, and "
                    f"{self.compressor} reads raw tokens in its tail only; width must be at least the stride"
                )
        with torch.device("meta"):  # what a compressor's constructor refuses is refused here, at no cost
            for layer in grids:
                compressor(layer, hidden_size, head_dim, **self.settings)


class CompressedQwen3Config(Qwen3Config):
    """Qwen3's configuration with a field `compression`; without it the model is plain Qwen3.

    Raises:
        UsageError: if `compression` names no known compressor or no possible grid.
    """

    model_type = "phasescope_qwen3"
    compression: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        plan = self.plan
        if plan is None:
            return
        heads = self.num_key_value_heads or self.num_attention_heads
        plan.check(self.num_hidden_layers, heads, self.hidden_size, self.head_dim)
        self.compression = plan.model_dump(mode="json")  # defaults are written out
        if self.num_attention_heads % heads:
            raise UsageError(f"{self.num_attention_heads} query heads cannot share {heads} KV heads evenly")
        if (self.rope_parameters or {}).get("rope_type") in ("dynamic", "longrope"):
            raise UsageError(
                "rotary embeddings that change with the length (dynamic, longrope) do not go with a compressed KV "
                "cache: entries are rotated once; use default, linear, yarn or llama3"
            )
        if any(kind != "full_attention" for kind in self.layer_types or ()):
            raise UsageError("compression replaces full attention; set use_sliding_window to false")

    @property
    def plan(self) -> Compression | None:
        """The validated form of `compression`."""
        if self.compression is None:
            return None
        if not isinstance(self.compression, dict):
            raise UsageError(f"compression is {self.compression!r}; give its fields by name, or None")
        return Compression.checked(**self.compression)
