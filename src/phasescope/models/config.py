"""The configuration of a Qwen3 model whose KV cache is compressed: one more field, `compression`."""

from __future__ import annotations

from typing import Any

from transformers import Qwen3Config

from ..errors import UsageError
from .compression import Compression, as_saved


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

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """From the content of a config.json; what does not say when entries are visible is of version 0.1."""
        given = as_saved(config_dict.get("compression"))
        return super().from_dict({**config_dict, "compression": given}, **kwargs)

    @property
    def plan(self) -> Compression | None:
        """The validated form of `compression`."""
        if self.compression is None:
            return None
        if not isinstance(self.compression, dict):
            raise UsageError(f"compression is {self.compression!r}; give its fields by name, or None")
        return Compression.checked(**self.compression)
