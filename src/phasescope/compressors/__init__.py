"""Compressors: token keys and values of one layer, compressed into the entries of its KV cache."""

from .base import AbstractCompressor as AbstractCompressor
from .base import AbstractWindowPool as AbstractWindowPool
from .base import Entries as Entries
