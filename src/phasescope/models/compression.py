"""How a KV cache is compressed: grid, compressor, and what is read beside its entries. Imports no torch."""

from __future__ import annotations

from inspect import signature
from typing import Any, Literal

from pydantic import Field, ValidationInfo, model_validator

from ..catalog import COMPRESSORS
from ..errors import UsageError
from ..grid import NEVER, WIDEST, WindowGrid
from ..settings import Settings, setting

PANEL = "Compression"
AT_ONCE = ("csa", "hca")
"""Compressors whose entries are visible to the token that closes their window, where nobody says otherwise."""
Shift = int | tuple[int, ...] | tuple[tuple[int, ...], ...]


def as_saved(given: Any) -> Any:
    """The fields of a `Compression` from a file; version 0.1 left out that every closing token reads its entry."""
    return {"visibility": "closing", **given} if isinstance(given, dict) else given


class Compression(Settings):
    """How a model compresses its KV cache."""

    compressor: str = setting(
        ..., "A compressor's name, or 'none' for full attention.", panel=PANEL, short="-c"
    )
    width: int = setting(..., "Tokens per window.", panel=PANEL, ge=1, le=WIDEST)
    stride: int = setting(..., "Tokens from one window's start to the next.", panel=PANEL, ge=1, le=WIDEST)
    shift: Shift = setting(
        0,
        "Tokens by which the grid is moved back: 4; per layer: 0,4; per layer and KV head: 0,4;2,6.",
        panel=PANEL,
    )
    tail: int = setting(
        0,
        "The last n tokens are also read uncompressed; 0: only those that no visible entry holds.",
        panel=PANEL,
        ge=0,
        le=WIDEST,
    )
    visibility: Literal["closing", "next"] = setting(
        "next",
        "Who first reads an entry: the token that closes its window, or the next one (csa and hca: closing).",
        panel=PANEL,
    )
    binding: bool = setting(
        False, "Key and value are one tensor, rotated as a key and turned back at the output.", panel=PANEL
    )
    rotary: float = setting(
        1.0,
        "Share of each head's channels that is rotated, the last ones; 0 for none.",
        panel=PANEL,
        ge=0,
        le=1,
    )
    sink: bool = setting(False, "One more logit per query head, with nothing to read.", panel=PANEL)
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further settings of the compressor, by name."""

    @model_validator(mode="before")
    @classmethod
    def _visible(cls, given: Any, info: ValidationInfo) -> Any:
        """Where nobody says it: as the compressor has it, or as the file has it that is read."""
        saved = info.mode == "json"
        if saved or (isinstance(given, dict) and given.get("compressor") in AT_ONCE):
            return as_saved(given)
        return given

    @property
    def closing(self) -> bool:
        """Whether an entry is visible to the token that closes its window."""
        return self.visibility == "closing"

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
            wait = max(grid.longest_wait(closing=self.closing) for layer in grids for grid in layer)
            if wait > self.tail:
                raise UsageError(
                    f"unread tokens: {self.compressor} reads only the last {self.tail} tokens uncompressed (tail), and "
                    f"on {grids[0][0]} a token may wait {wait} tokens for its entry; set tail to {wait} or more"
                    if wait < NEVER
                    else f"unread tokens: on {grids[0][0]} the tokens between windows are in no entry, and "
                    f"{self.compressor} reads uncompressed tokens in its tail only; width must be at least the stride"
                )
        import torch

        with torch.device("meta"):  # what a compressor's constructor refuses is refused here, at no cost
            for layer in grids:
                compressor(layer, hidden_size, head_dim, **self.settings)
