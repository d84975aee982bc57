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
    """Weighted mean loss in nats of the targets, the share of targets whose logit is the largest, and each loss.

        ℓ_k = log Σ_v exp(h_k·w_v) − h_k·w_target,    loss = mean over k of a_k · ℓ_k

    The gradients are computed together with the loss, rows by rows, so that logits of a few rows are all that is
    ever held: at Qwen3's vocabulary of 151,936 all logits of 8 × 4,096 tokens would take 20 GB, and on a CPU
    small ones need not leave the cache. The plain form is `torch.nn.functional.cross_entropy`.

    Args:
        hidden_KE: hidden states after the last norm.
        weight_VE: the output matrix.
        target_K: ids.
        share_K: a, without gradient; None for ones.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_KE: Tensor, weight_VE: Tensor, target_K: Tensor, share_K: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, hits and the losses one by one; see the class."""
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
                losses.append((sum_C1.log() + most_C1 - right_C1)[:, 0])
                hits.append((right_C1 >= most_C1).sum())
                if grad_hidden is not None and grad_weight is not None:
                    grad_CV = mass_CV.div_(sum_C1 * len(target_K))
                    grad_CV.scatter_add_(1, target_C1, torch.full_like(sum_C1, -1 / len(target_K)))
                    if share_K is not None:
                        grad_CV *= share_K[here, None]
                    grad_CV = grad_CV.to(dtype)
                    grad_hidden[here] = grad_CV @ weight
                    grad_weight += grad_CV.T @ hidden
        ctx.save_for_backward(grad_hidden, grad_weight)
        hit = torch.stack(hits).sum() / len(target_K)
        loss_K = torch.cat(losses)
        ctx.mark_non_differentiable(hit, loss_K)
        return (loss_K if share_K is None else loss_K * share_K).mean(), hit, loss_K

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """The gradients of the loss, as `forward` left them."""
        grad_hidden, grad_weight = ctx.saved_tensors
        return grads[0] * grad_hidden, grads[0] * grad_weight, None, None


@contextmanager
def headless(model: Any) -> Iterator[nn.Linear]:
    """A causal language model that returns its last hidden states in place of logits; yields its head."""
    head = model.lm_head
    model.lm_head = nn.Identity()
    try:
        yield head
    finally:
        model.lm_head = head
