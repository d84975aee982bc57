"""Qwen3 with a chunked KV cache. Loading `qwen3` registers it with the auto classes of `transformers`."""

from typing import TYPE_CHECKING

from ..lazy import lazily
from .compression import Compression as Compression

if TYPE_CHECKING:
    from .cache import EntryCache as EntryCache
    from .config import CompressedQwen3Config as CompressedQwen3Config
    from .qwen3 import CompressedQwen3ForCausalLM as CompressedQwen3ForCausalLM

__getattr__, __dir__ = lazily(
    __name__,
    {"EntryCache": ".cache", "CompressedQwen3Config": ".qwen3", "CompressedQwen3ForCausalLM": ".qwen3"},
)
