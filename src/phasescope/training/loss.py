"""Cross-entropy from hidden states and the output matrix, a few rows of logits at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

LEAST_ROWS = 512  # fewer would read the output matrix too often
LOGITS_AT_ONCE = {"cpu": 2**20}  # 4 MB, which stays in the cache
MANY_LOGITS = 2**28


class CrossEntropy(torch.autograd.Function):
    """Mean loss in nats of the targets, and the share of targets whose logit is the largest.

        loss = mean over k of (log Σ_v exp(h_k·w_v) − h_k·w_target)

    The gradients are computed together with the loss, rows by rows, so that logits of a few rows are all that is
    ever held: at Qwen3's vocabulary of 151,936 all logits of 8 × 4,096 tokens would take 20 GB, and on a CPU
    small ones need not leave the cache. The plain form is `torch.nn.functional.cross_entropy`.

    Args:
        hidden_KE: hidden states after the last norm.
        weight_VE: the output matrix.
        target_K: ids.
    """

    @staticmethod
    def forward(ctx: Any, hidden_KE: Tensor, weight_VE: Tensor, target_K: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and hits; see the class."""
        kind = hidden_KE.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_KE.dtype
        exact = torch.promote_types(dtype, torch.float32)
        wants = any(ctx.needs_input_grad)
        weight = weight_VE.to(dtype)
        grad_hidden = torch.empty_like(hidden_KE) if wants else None
        grad_weight = torch.zeros_like(weight_VE) if wants else None
        losses, hits = [], []
        rows = max(LEAST_ROWS, LOGITS_AT_ONCE.get(kind, MANY_LOGITS) // len(weight))
        with torch.autocast(kind, enabled=False):
            for part in range(0, len(hidden_KE), rows):
                here = slice(part, part + rows)
                hidden, target_C1 = hidden_KE[here].to(dtype), target_K[here, None]
                logits_CV = (hidden @ weight.T).to(exact)
                most_C1, right_C1 = logits_CV.amax(1, keepdim=True), logits_CV.gather(1, target_C1)
                mass_CV = logits_CV.sub_(most_C1).exp_()
                sum_C1 = mass_CV.sum(1, keepdim=True)
                losses.append((sum_C1.log() + most_C1 - right_C1).sum())
                hits.append((right_C1 >= most_C1).sum())
                if grad_hidden is not None and grad_weight is not None:
                    grad_CV = mass_CV.div_(sum_C1 * len(target_K))
                    grad_CV.scatter_add_(1, target_C1, torch.full_like(sum_C1, -1 / len(target_K)))
                    grad_CV = grad_CV.to(dtype)
                    grad_hidden[here] = grad_CV @ weight
                    grad_weight += grad_CV.T @ hidden
        ctx.save_for_backward(grad_hidden, grad_weight)
        hit = torch.stack(hits).sum() / len(target_K)
        ctx.mark_non_differentiable(hit)
        return torch.stack(losses).sum() / len(target_K), hit

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        """The gradients of the loss, as `forward` left them."""
        grad_hidden, grad_weight = ctx.saved_tensors
        return grads[0] * grad_hidden, grads[0] * grad_weight, None


@contextmanager
def headless(model: Any) -> Iterator[nn.Linear]:
    """A causal language model that returns its last hidden states in place of logits; yields its head."""
    head = model.lm_head
    model.lm_head = nn.Identity()
    try:
        yield head
    finally:
        model.lm_head = head
