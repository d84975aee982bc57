"""The configuration of a Qwen3 model whose KV cache is compressed: one more field, `compression`."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from transformers import Qwen3Config

from ..catalog import COMPRESSORS
from ..errors import UsageError
from ..grid import WindowGrid
from ..records import Record

Shift = int | tuple[int, ...] | tuple[tuple[int, ...], ...]


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
    """

    compressor: str
    width: int
    stride: int
    shift: Shift = 0
    tail: int = Field(default=0, ge=0)

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
        if plan.compressor not in COMPRESSORS.names():
            COMPRESSORS.load(plan.compressor)  # raises the error that lists the known names
        self.compression = plan.model_dump(mode="json")  # defaults are written out
        plan.grids(self.num_hidden_layers, self.num_key_value_heads or self.num_attention_heads)
        if any(kind != "full_attention" for kind in self.layer_types or ()):
            raise UsageError("compression replaces full attention; set use_sliding_window to false")

    @property
    def plan(self) -> Compression | None:
        """The validated form of `compression`."""
        return None if self.compression is None else Compression.checked(**self.compression)
