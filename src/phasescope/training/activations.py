"""Bytes that a layer keeps of a token until its backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..models import CompressedQwen3ForCausalLM
from ..models.attention import BLOCK, STRIP
from .settings import Training

WIDE = 256  # channels; wider models are extrapolated, as their weights may not fit into memory


def activation_bytes(settings: Training, length: int) -> float:
    """Bytes that one layer keeps of one token for its backward pass, counted on layers of real tensors.

    What is kept of a token has the model's width or the feed-forward width, never their product: the count is linear in
    both, and beyond `WIDE` it follows exactly from two narrower models.
    """
    config = settings.architecture()
    widths = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size}
    narrow = {name: min(width, WIDE) for name, width in widths.items()}
    counted = _counted_bytes(settings, length, narrow)
    total = counted
    for name, width in widths.items():
        if width > WIDE:
            twice = _counted_bytes(settings, length, {**narrow, name: 2 * WIDE})
            total += (twice - counted) * (width - WIDE) / WIDE
    return total


def _counted_bytes(settings: Training, length: int, widths: dict[str, int]) -> float:
    """The same at these widths: two lengths and two depths are read, and what grows with both is taken."""
    short, long = (BLOCK // 4, BLOCK // 2) if length <= BLOCK else (BLOCK + STRIP, 2 * BLOCK + STRIP)
    kept = {}
    for layers in (1, 2):
        thin = _thin(settings, layers, widths)
        for tokens in (short, long):
            kept[layers, tokens] = _kept_bytes(thin, settings, tokens)
    grown = kept[2, long] - kept[1, long] - kept[2, short] + kept[1, short]
    return grown / (long - short)


def _thin(settings: Training, layers: int, widths: dict[str, int]) -> Any:
    """A model of few layers and few words, of zeros, as drawing weights takes longest."""
    config = settings.architecture().to_dict()
    plan_ = config.get("compression")
    if plan_ is not None and not isinstance(plan_["shift"], int):
        plan_ = {**plan_, "shift": plan_["shift"][0] if isinstance(plan_["shift"][0], int) else 0}
    kind = type(settings.architecture())
    changed = {
        "num_hidden_layers": layers,
        "vocab_size": 8,
        "layer_types": None,
        "compression": plan_,
        **widths,
    }
    with torch.device("meta"):
        model: Any = CompressedQwen3ForCausalLM(kind(**{**config, **changed}))
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    return model


def _kept_bytes(model: Any, settings: Training, tokens: int) -> int:
    held: dict[int, Any] = {}
    own = {param.untyped_storage().data_ptr() for param in model.parameters()}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage
        return x

    ids_BT = torch.zeros(1, tokens, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, _as_it_is),
        torch.autocast("cpu", torch.bfloat16, settings.precision == "bf16"),
    ):
        loss = model(input_ids=ids_BT, logits_to_keep=1, use_cache=False).logits.sum()
    del loss
    return sum(storage.nbytes() for storage in held.values())


def _as_it_is(x: Tensor) -> Tensor:
    return x
