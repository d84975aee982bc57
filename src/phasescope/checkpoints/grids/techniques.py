"""Grids that an engine or a cache brings along, whatever the checkpoint: by name, with their usual settings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...errors import UnknownNameError
from ...grid import WindowGrid
from .base import Fold, Layer, Target

_quantised = partial(Fold, "quantisation", anchor="slot")


@dataclass(frozen=True)
class Technique:
    """One technique.

    Attributes:
        name: as it is asked for.
        folds: its grids; none for a technique that has none.
        settings: what sets them, with the values taken here.
        note: what a user should know.
        source: where the settings are written.
    """

    name: str
    folds: tuple[Fold, ...]
    settings: str
    note: str
    source: str

    @property
    def target(self) -> Target:
        """As the target of a model that is dense but for this technique."""
        layers = (Layer(0, "every layer", self.folds),) if self.folds else ()
        notes = (f"set by {self.settings}", self.note, f"source: {self.source}")
        return Target(
            "any", self.name, layers, "" if self.folds else self.note, notes, source=f"technique {self.name}"
        )


def _square(size: int) -> WindowGrid:
    return WindowGrid(size, size)


_ALL = (
    Technique(
        "quantized_cache",
        (_quantised(_square(128), reach=128),),
        "residual_length=128, q_group_size=64",
        "everything is quantised again whenever the residual fills, so precision goes by position mod residual_length",
        "transformers 5.24, QuantizedLayer.update in cache_utils.py",
    ),
    Technique(
        "kivi",
        (_quantised(_square(32), reach=32),),
        "group_size=32, residual_length=32",
        "keys are grouped along the tokens, each group with a scale of its own",
        "jy-yuan/KIVI, models/llama_kivi.py",
    ),
    Technique(
        "chunkkv",
        (Fold("eviction", _square(20), "slot", None, tail=None),),
        "chunk_length=20",
        "chunks of the prompt are kept or evicted as one; the ratio decides from which length on",
        "NVIDIA/kvpress, kvpress/presses/chunkkv_press.py",
    ),
    Technique(
        "chunk_press",
        (Fold("eviction", _square(1024), "slot", None),),
        "chunk_length=1024",
        "each chunk gives up the same share of its tokens, whatever the others hold",
        "NVIDIA/kvpress, kvpress/presses/chunk_press.py",
    ),
    Technique(
        "block_press",
        (Fold("eviction", _square(128), "slot", None),),
        "block_size=128",
        "tokens compete for their place block by block",
        "NVIDIA/kvpress, kvpress/presses/block_press.py",
    ),
    Technique(
        "quest",
        (Fold("selection", _square(16), "slot", None, tail=True),),
        "page_size=16",
        "pages are chosen by the smallest and largest value of each key channel",
        "mit-han-lab/Quest, evaluation/passkey/passkey.py",
    ),
    Technique(
        "infllm",
        (Fold("selection", _square(128), "slot", None, tail=True),),
        "block_size=128",
        "blocks are looked up by a few representative keys",
        "thunlp/InfLLM, config/*.yaml",
    ),
    Technique(
        "minference",
        (Fold("mask", _square(64), "slot", None, tail=True),),
        "block 64, last_q=64",
        "block-sparse prefill; decoding is dense",
        "microsoft/MInference, minference/ops/block_sparse_flash_attention.py",
    ),
    Technique(
        "flexprefill",
        (Fold("mask", _square(128), "slot", None, tail=True),),
        "block 128",
        "block-sparse prefill; decoding is dense",
        "microsoft/MInference, minference/modules/flexprefill.py",
    ),
    Technique(
        "xattention",
        (Fold("mask", _square(128), "slot", None, tail=True),),
        "block 128",
        "block-sparse prefill; decoding is dense",
        "microsoft/MInference, minference/modules/xattention.py",
    ),
    Technique(
        "streaming_llm",
        (),
        "sinks and a window, token by token",
        "sinks and a sliding window, token by token",
        "mit-han-lab/streaming-llm",
    ),
    Technique(
        "snapkv",
        (),
        "a budget of tokens",
        "eviction token by token",
        "NVIDIA/kvpress, kvpress/presses/snapkv_press.py",
    ),
)
TECHNIQUES = {one.name: one for one in _ALL}


def technique(name: str) -> Technique:
    """The technique of that name.

    Raises:
        UnknownNameError: if there is none.
    """
    if name not in TECHNIQUES:
        raise UnknownNameError.among(f"unknown technique {name!r}; known:", name, sorted(TECHNIQUES))
    return TECHNIQUES[name]
