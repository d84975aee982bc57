"""The published grid at the scale that two cores can train."""

from __future__ import annotations

from typing import Any

from ...models import Compression
from ..data import RetrievalTask
from ..settings import Text, Training

GRIDS = ((4, 4), (8, 4), (8, 6), (8, 8), (12, 12))


def rows(text: Text | None) -> dict[str, Training]:
    """Every row of the table, by name; seeds are given by `Training.seed`.

    Source: arXiv 2609.36322 for the axes.
    Differs: two layers of width 64 and at most 16 records a context instead of Qwen3-0.6B.
    """
    found = {"full": _row(None, text), "full-4kv": _row(None, text, kv_heads=4)}
    for width, stride in GRIDS:
        found[f"w{width}s{stride}"] = _row(_grid(width, stride), text)
    return found


def _grid(width: int, stride: int, **settings: Any) -> Compression:
    return Compression(**{"compressor": "scalar_gate", "width": width, "stride": stride, **settings})


def _row(compression: Compression | None, text: Text | None, **settings: Any) -> Training:
    first = 0 if text is None else text.vocabulary
    vocabulary = RetrievalTask().vocabulary
    task = RetrievalTask(
        vocabulary=vocabulary.contiguous(
            len(vocabulary.fillers), len(vocabulary.keys), len(vocabulary.values), first
        )
    )
    return Training(**{"compression": compression, "task": task, "text": text, "kv_heads": 1, **settings})
