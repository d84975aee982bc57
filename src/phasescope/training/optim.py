"""Which optimizer moves which parameter, and how step sizes rise and fall."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from .muon import Muon
from .settings import Training

BETAS = (0.9, 0.95)


def optimizers_of(model: torch.nn.Module, settings: Training) -> list[Optimizer]:
    """Muon or AdamW for the matrices inside the layers, AdamW for all other parameters.

    Gates and slot biases count as other parameters with a step size of their own: orthogonal updates have no meaning
    for maps of one channel per head. Each group keeps its highest step size as `peak`, which `set_step_sizes` scales.
    """
    matrices: list[Tensor] = []
    gates: list[Tensor] = []
    rest: list[Tensor] = []
    for name, param in model.named_parameters():
        inner = "layers" in name and param.ndim == 2
        (gates if ".compressor." in name else matrices if inner else rest).append(param)
    groups = [
        {"params": rest, "lr": settings.lr_rest, "weight_decay": 0.0},
        {"params": gates, "lr": settings.lr_gates, "weight_decay": 0.0},
    ]
    of_matrices = {"lr": settings.lr_matrices, "weight_decay": settings.weight_decay}
    optimizers: list[Optimizer] = []
    if settings.optimizer == "muon":
        optimizers.append(Muon(matrices, **of_matrices))
    else:
        groups.append({"params": matrices, **of_matrices})
    optimizers.append(torch.optim.AdamW([part for group in groups for part in _alike(group)], betas=BETAS))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def _alike(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Whole and split parameters apart, as no operation takes both at once."""
    for split in (False, True):
        params = [param for param in group["params"] if isinstance(param, DTensor) is split]
        if params:
            yield {**group, "params": params}


def set_step_sizes(optimizers: list[Optimizer], step: int, settings: Training) -> None:
    """Scale every group's step size for this step."""
    share = schedule(step, settings)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share


def schedule(step: int, settings: Training) -> float:
    """Share of the highest step size: a linear rise, a plateau, and a fall to zero over the last steps."""
    rise = min(1.0, (step + 1) / (settings.warmup + 1))
    left = min(1.0, (settings.steps - step) / max(1.0, settings.decay * settings.steps))
    fall = left if settings.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2
    return min(rise, fall)
