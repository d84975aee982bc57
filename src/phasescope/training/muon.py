"""Muon: momentum whose matrix updates are orthogonalised, in the parameters' own precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from .parallel import by_owners, local

QUINTIC = (3.4445, -4.7750, 2.0315)
STEPS = 5


class Muon(Optimizer):
    """Nesterov momentum, orthogonalised by Newton–Schulz, for the weight matrices of hidden layers.

        m ← β m + (1 − β) g
        θ ← θ (1 − η λ) − η · sqrt(max(1, rows / columns)) · orthogonal(g (1 − β) + β m)

    Args:
        params: matrices only.
        lr: step size η.
        momentum: β.
        weight_decay: λ, decoupled.

    Source: Keller Jordan, "Muon" (2024); the form of `torch.optim.Muon`.
    Differs: Newton–Schulz runs in the gradient's own dtype and on all matrices of one shape at once;
        `torch.optim.Muon` casts to bfloat16, which a CPU without such units does slowly. Of matrices in shards each
        is orthogonalised whole, by one process (`parallel.by_owners`).
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.01, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for param in group["params"]:
                if param.grad is not None:
                    by_shape.setdefault(param.shape, []).append(param)
            for params in by_shape.values():
                self._step_one_shape(params, group)

    def _step_one_shape(self, params: list[Tensor], group: dict[str, Any]) -> None:
        beta, lr = group["momentum"], group["lr"]
        steps = []
        for param in params:
            assert param.grad is not None  # `step` collects only those
            momentum = self.state[param].setdefault("momentum", torch.zeros_like(param))
            gradient = local(param.grad)
            local(momentum).lerp_(gradient, 1 - beta)
            steps.append(gradient.lerp(local(momentum), beta))
        scale = max(1.0, params[0].shape[0] / params[0].shape[1]) ** 0.5
        for param, step in zip(params, _orthogonal(steps, params[0]), strict=True):
            local(param).mul_(1 - lr * group["weight_decay"]).add_(step, alpha=-lr * scale)


def _orthogonal(steps: list[Tensor], like: Tensor) -> Iterable[Tensor]:
    if isinstance(like, DTensor):
        return by_owners(steps, like, orthogonal)
    return orthogonal(torch.stack(steps))


def orthogonal(x: Tensor) -> Tensor:
    """The nearest half-orthogonal matrices, roughly: singular values land in about 0.7 to 1.2.

    Args:
        x: matrices of shape [..., rows, columns].
    """
    tall = x.shape[-2] > x.shape[-1]
    y = x.mT if tall else x
    y = y / y.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    a, b, c = QUINTIC
    for _ in range(STEPS):
        gram = y @ y.mT
        y = a * y + (b * gram + c * gram @ gram) @ y
    return y.mT if tall else y
