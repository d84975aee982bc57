"""One forward of a chunk of tokens with a cache: the one place that knows what `transformers` has to be told.

Shape suffixes: B rows, T tokens.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

BREAKS = (RuntimeError, IndexError, ValueError, AttributeError, TypeError, KeyError, AssertionError)
"""What a forward may raise that cannot be computed, among others on a cache that an operation left broken."""


def forward(
    model: Any, ids_BT: Tensor, cache: Any, *, start: int, keep: int, use_cache: bool = True, **inputs: Any
) -> Any:
    """The model's output for a chunk, with the logits of its last `keep` tokens.

    Positions are passed behind a cache wherever `generate` passes them, because the default of some models (Bamba)
    begins at 0 in every chunk, whatever the cache holds. The start of a prompt is left to the model: RoBERTa and its
    kin count from their pad token's id on.

    Args:
        model: a causal language model.
        ids_BT: the chunk.
        cache: of the tokens before it; changed in place. None at the start of a prompt.
        start: the position of the chunk's first token.
        keep: how many tokens' logits are wanted.
        use_cache: False makes no cache.
        **inputs: further arguments; positions among them replace those counted from `start`.
    """
    if start and _takes_positions(type(model)):
        end = start + ids_BT.shape[1]
        inputs.setdefault("position_ids", torch.arange(start, end, device=ids_BT.device)[None])
    # `cache` is what transformers 5.24 calls `past_key_values`; nothing else here depends on the name.
    return model(input_ids=ids_BT, cache=cache, use_cache=use_cache, logits_to_keep=keep, **inputs)


def _takes_positions(model_class: type) -> bool:
    """By the rule of `GenerationMixin.generate`."""
    return "position_ids" in inspect.signature(model_class.forward).parameters  # type: ignore[attr-defined]
