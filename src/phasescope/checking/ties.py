"""Choices among equal scores, seen and settled, and rounding errors made on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

CHOICES = (torch.topk, torch.Tensor.topk)


class EqualScores(TorchFunctionMode):
    """Counts choices among equal scores that `topk` makes, and makes them by age.

    Which of several equal scores `topk` returns depends on how many others stand beside them. A sparse
    indexer that scores many entries with exactly 0 then reads other entries after the same tokens in a
    longer prompt: no fault of the engine, and none that a tolerance could tell from one.

    Args:
        settle: choose the first of equal scores, whatever stands behind them.

    Attributes:
        seen: calls in which a score that was chosen equals one that was not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in CHOICES:
            return func(*args, **kwargs)
        scores, k, dim, largest = _arguments(*args, **kwargs)
        found = func(*args, **kwargs)
        if k == 0 or k >= scores.shape[dim]:
            return found  # nothing is left out
        self.seen += int(bool(_equal(scores, found.values, k, dim, largest).any()))
        values, indices = scores.sort(dim=dim, descending=largest, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))


def _arguments(
    scores: Tensor, k: int, dim: int = -1, largest: bool = True, **kwargs: Any
) -> tuple[Tensor, int, int, bool]:
    return scores, int(k), dim, largest


def _equal(scores: Tensor, chosen: Tensor, k: int, dim: int, largest: bool) -> Tensor:
    """Where more scores are as good as the worst one chosen than places are left for them."""
    worst = chosen.amin(dim, keepdim=True) if largest else chosen.amax(dim, keepdim=True)
    at_least = (scores >= worst) if largest else (scores <= worst)
    return (at_least.sum(dim) > k) & worst.squeeze(dim).isfinite()


@contextmanager
def rounding_errors(model: nn.Module, generator: torch.Generator, size: float) -> Iterator[None]:
    """Within it, what the embedding and every layer return is off by a random relative error.

    Args:
        model: a causal language model; its layers are its longest list of modules.
        generator: of every draw.
        size: standard deviation of the relative error.
    """

    def disturb(module: nn.Module, args: Any, output: Any) -> Any:
        tensor = output[0] if isinstance(output, tuple) else output
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.device)
        moved = (tensor * (1 + size * noise)).to(tensor.dtype)
        return (moved, *output[1:]) if isinstance(output, tuple) else moved

    handles = [module.register_forward_hook(disturb) for module in _layers(model)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _layers(model: nn.Module) -> list[nn.Module]:
    """The embedding, and the longest list of modules."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
    return [embedding, *max(lists, key=len, default=[])]
