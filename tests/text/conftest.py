"""Tokenizers to locate and pad with."""

from ..tokenizers import byte_fallback, byte_level, real_tokenizer, rng

__all__ = ["byte_fallback", "byte_level", "real_tokenizer", "rng"]
