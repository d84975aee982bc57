"""The published grid at the scale that two cores can train, and attempts on the open problem beside it."""

from __future__ import annotations

from typing import Any

from ...models import Compression
from ..data import RetrievalTask
from ..settings import Text, Training
from .paper import GRIDS, grid

KV_HEADS = (2, 4)
ABLATIONS: dict[str, dict[str, Any]] = {
    "vector": {"compressor": "vector_gate"},
    "uniform": {"compressor": "uniform"},
    "binding": {"binding": True},
    "norope": {"rotary": 0.0},
    "tail": {"tail": 16},
    "csa": {
        "compressor": "csa",
        "shift": 4,
        "tail": 4,
        "binding": True,
        "sink": True,
        "rotary": 0.5,
        "settings": {"topk": 16, "index_heads": 4, "index_dim": 16},
    },
}
"""On W8/S4: we guess that this is the reference of the published ablations, from the size of their gaps."""

ATTEMPTS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "layers": (1, {"shift": (0, 4)}, {}),
    "balance": (1, {}, {"balance": 1.0}),
    "random-shift": (1, {}, {"random_shift": True}),
    "wide": (1, {"width": 16}, {}),
    "tail2": (1, {"tail": 2}, {}),
    "dynamic": (1, {"compressor": "dynamic", "width": 16, "settings": {"minimum": 4}}, {}),
    "content": (1, {"settings": {"slots": False}}, {}),
    "tail2-layers": (1, {"tail": 2, "shift": (0, 4)}, {}),
    "tail2-content": (1, {"tail": 2, "settings": {"slots": False}}, {}),
    "tail2-2kv": (2, {"tail": 2}, {}),
    "tail2-heads": (2, {"tail": 2, "shift": ((0, 4), (0, 4))}, {}),
    "heads": (2, {"shift": ((0, 4), (0, 4))}, {}),
    "both": (2, {"shift": ((0, 4), (2, 6))}, {}),
    "robust": (2, {}, {"robust": 1.0}),
    "both-robust": (2, {"shift": ((0, 4), (2, 6))}, {"robust": 1.0}),
    "both-robust-half": (2, {"shift": ((0, 4), (2, 6))}, {"robust": 0.5}),
    "both-robust-fifth": (2, {"shift": ((0, 4), (2, 6))}, {"robust": 0.2}),
    "both-late": (2, {"shift": ((0, 4), (2, 6))}, {"robust": 1.0, "robust_after": 1400}),
    "late": (2, {}, {"robust": 1.0, "robust_after": 1400}),
    "both-balance": (2, {"shift": ((0, 4), (2, 6))}, {"balance": 1.0}),
    "vector": (2, {"compressor": "vector_gate"}, {"feed_forward": 104}),
    "vector-both": (2, {"compressor": "vector_gate", "shift": ((0, 4), (2, 6))}, {"feed_forward": 104}),
    "tail2-both": (2, {"tail": 2, "shift": ((0, 4), (2, 6))}, {}),
    "tail2-vector-both": (
        2,
        {"tail": 2, "compressor": "vector_gate", "shift": ((0, 4), (2, 6))},
        {"feed_forward": 104},
    ),
}
"""Of the open problem, by name: KV heads of the baseline, what differs in the grid, and in the training."""

TRAINING: dict[str, Any] = {
    "steps": 2400,
    "embedding_std": 0.3,
    "raw_steps": 600,
    "shared_start": True,
}
TEXT = {"rows": 4, "tokens": 256, "weight": 0.3}


def rows(text: Text | None) -> dict[str, Training]:
    """Every row by name; `Training.seed` says which seed.

    Source: arXiv 2609.36322 for the axes; the attempts are ours.
    Differs: two layers of width 64 with 4 query heads of 32 channels, so that the most KV heads are 4 and not 8; at
        most 16 records a context; text and records in one mixture instead of a text corpus alone. In the first quarter
        of the steps nothing is compressed: from scratch, two layers take longer than two cores allow to find records in
        entries.
    """
    found = {"full": _row(text, None)}
    for width, stride in GRIDS:
        found[f"w{width}s{stride}"] = _row(text, grid(width, stride))
    for kv_heads in KV_HEADS:
        found[f"full-{kv_heads}kv"] = _row(text, None, kv_heads=kv_heads)
        found[f"w8s8-{kv_heads}kv"] = _row(text, grid(8, 8), kv_heads=kv_heads)
    for name, changes in ABLATIONS.items():
        found[f"w8s4-{name}"] = _row(text, grid(8, 4, **changes))
    for name, (kv_heads, changes, training) in ATTEMPTS.items():
        found[f"try-{name}"] = _row(
            text, grid(**{"width": 8, "stride": 8, **changes}), **{"kv_heads": kv_heads, **training}
        )
    return found


def _row(text: Text | None, compression: Compression | None, **changes: Any) -> Training:
    first = 0 if text is None else text.vocabulary
    ids = RetrievalTask().vocabulary
    vocabulary = ids.contiguous(len(ids.fillers), len(ids.keys), len(ids.values), first)
    settings = {**TRAINING, "kv_heads": 1, **changes}
    if compression is None:
        settings["raw_steps"] = 0
    return Training(
        compression=compression,
        task=RetrievalTask(vocabulary=vocabulary),
        text=None if text is None else text.model_copy(update=TEXT),
        **settings,
    )
