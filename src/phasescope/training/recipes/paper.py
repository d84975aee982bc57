"""The published grid at its own scale, Qwen3-0.6B, for a cluster of GPUs."""

from __future__ import annotations

from typing import Any

from ...models import Compression
from ...text.synthetic import RetrievalVocabulary
from ..data import RetrievalTask
from ..settings import Text, Training

QWEN3 = {
    "layers": 28,
    "hidden_size": 1024,
    "heads": 16,
    "head_dim": 128,
    "feed_forward": 3072,
    "tie_embeddings": True,
    "rope_theta": 1e6,
    "embedding_std": 0.02,
}
"""Qwen3-0.6B, but for its KV heads."""
WORDS = 151_936
"""Qwen3's vocabulary, which a plan counts with where no corpus is named."""
SCHEDULE = {
    "steps": 12_000,
    "rows": 256,
    "queries": 4096,
    "max_pairs": 64,
    "optimizer": "adamw",
    "lr_matrices": 6e-4,
    "lr_gates": 6e-4,
    "lr_rest": 6e-4,
    "weight_decay": 0.1,
    "warmup": 500,
    "decay": 1.0,
    "schedule": "cosine",
    "accumulate": 8,
    "precision": "bf16",
}
"""Ours: 12,000 steps of 256 windows of 4,096 tokens are 12.6 billion tokens of text, about 20 a parameter."""
GRIDS = ((4, 4), (8, 4), (8, 6), (8, 8), (12, 12))
ABLATIONS: dict[str, dict[str, Any]] = {
    "vector": {"compressor": "vector_gate"},
    "uniform": {"compressor": "uniform"},
    "binding": {"binding": True},
    "norope": {"rotary": 0.0},
    "tail128": {"tail": 128},
    "csa": {"compressor": "csa", "shift": 4, "binding": True, "tail": 3},
}


def rows(text: Text | None) -> dict[str, Training]:
    """Every row of the table, by name; seeds are given by `Training.seed`.

    Source: arXiv 2609.36322 for the axes: W4/S4, W8/S4, W8/S6, W8/S8 and W12/S12 on one KV head; full attention and
        W8/S8 on 1, 4 and 8; gates, binding, no rotary embedding and a tail window as ablations.
    Differs: text, tokens, window length, batch, optimizer and schedule are not known to us and are our choice, as is
        the share of records beside the text (2 % of the tokens), without which a model of this size recalls little.
        The ablations are run on W8/S4. `csa` is DeepSeek-V4's pooling without its indexer, sink and window of 128
        tokens, which are other axes; its raw tokens are the fewest that leave none unread.
    """
    found = {"full": _row(None, text)}
    for width, stride in GRIDS:
        found[f"w{width}s{stride}"] = _row(grid(width, stride), text)
    for heads in (4, 8):
        found[f"full-{heads}kv"] = _row(None, text, kv_heads=heads)
        found[f"w8s8-{heads}kv"] = _row(grid(8, 8), text, kv_heads=heads)
    for name, changed in ABLATIONS.items():
        found[f"w8s4-{name}"] = _row(grid(8, 4, **changed), text)
    return found


def grid(width: int, stride: int, **changed: Any) -> Compression:
    """A grid with the reference's scalar gate, but for what is changed.

    Entries are visible to the token that closes their window, as in version 0.1, whose runs these rows repeat.
    """
    base = {"compressor": "scalar_gate", "width": width, "stride": stride, "visibility": "closing"}
    return Compression(**{**base, **changed})


def _row(compression: Compression | None, text: Text | None, kv_heads: int = 1) -> Training:
    """Records use ids behind those of the text."""
    source = text or Text(corpus="(yours)", vocabulary=WORDS)
    first = source.vocabulary
    return Training(
        **{
            **QWEN3,
            **SCHEDULE,
            "kv_heads": kv_heads,
            "compression": compression,
            "text": Text(corpus=source.corpus, vocabulary=first, rows=256, tokens=4096),
            "task": RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(32, 256, 256, first)),
        }
    )
