"""Qwen3 with a chunked KV cache. Importing this module registers it with `transformers`' auto classes."""

from transformers import AutoConfig, AutoModelForCausalLM

from .cache import EntryCache as EntryCache
from .config import CompressedQwen3Config as CompressedQwen3Config
from .config import Compression as Compression
from .qwen3 import CompressedQwen3ForCausalLM as CompressedQwen3ForCausalLM

AutoConfig.register(CompressedQwen3Config.model_type, CompressedQwen3Config, exist_ok=True)
AutoModelForCausalLM.register(CompressedQwen3Config, CompressedQwen3ForCausalLM, exist_ok=True)
