"""Heads that specialise in slots: records side by side, compressed from the first step, as in the paper's regime.

Gates part from the start (`matrix_init`), a window holds several records, no id tells a key from a value, and the token
that closes a window still reads it raw. One factor of these at a time is taken back.
"""

from __future__ import annotations

from typing import Any

from ...models import Compression
from ..data import RetrievalTask
from ..settings import Text, Training
from .paper import GRIDS, grid

TRAINING: dict[str, Any] = {
    "kv_heads": 2,
    "matrix_init": "fan_in",
    "embedding_std": 0.5,
    "lr_matrices": 0.022,
    "lr_gates": 0.01,
    "lr_rest": 0.01,
    "rows": 64,
    "queries": 1024,
    "steps": 4200,
    "promote": 2.3,
    "decay": 0.4,
}
FACTORS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gaps": ({}, {"packed": False}, {}),
    "ids": ({}, {"shared_ids": False}, {}),
    "closing": ({"visibility": "closing"}, {}, {}),
    "normal": ({}, {}, {"matrix_init": "normal"}),
    "fixed": ({}, {"fixed_fillers": True, "fillers": 24}, {}),
    "wide": ({}, {}, {"hidden_size": 128, "feed_forward": 256}),
    "deep": ({}, {}, {"layers": 4}),
    "raw": ({}, {}, {"raw_steps": 600}),
}
"""What is changed on W8/S8: in the grid, in the records, in the training."""


def rows(text: Text | None) -> dict[str, Training]:
    """Every row by name; `Training.seed` says which seed. Records alone: a text is not used.

    Source: arXiv 2609.36322 for the axes.
    Differs: two layers of width 64 on records alone; the paper's are 28 layers on text.
    """
    found = {"full": _row(None)}
    for width, stride in GRIDS:
        found[f"w{width}s{stride}"] = _row(grid(width, stride, visibility="next"))
    for name, (changes, task, training) in FACTORS.items():
        compression = grid(8, 8, **{"visibility": "next", **changes})
        found[f"w8s8-{name}"] = _row(compression, task, **training)
    return found


def _row(compression: Compression | None, task: dict[str, Any] | None = None, **changes: Any) -> Training:
    records = RetrievalTask(**{"packed": True, "shared_ids": True, **(task or {})})
    return Training(compression=compression, task=records, **{**TRAINING, **changes})
