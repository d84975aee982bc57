"""Reading in blocks is the plain form, in values and gradients, and never holds an array of T × T."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from phasescope.models import attention
from tests.models.test_cache import PLANS, every_plan, model


@pytest.mark.parametrize("pads", [(0, 0), (0, 37)], ids=str)
@every_plan
def test_blocks_of_queries_equal_one_block_in_values_and_gradients(
    plan: dict[str, Any], pads: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle reads all queries at once; blocks, computed again or kept, give its logits and gradients to 1e-9."""
    subject, ids = model(plan), torch.randint(50, (2, 75))
    mask = (torch.arange(75) >= torch.tensor(pads)[:, None]).int()
    found = []
    for block, strip in ((1000, 1000), (16, 1000), (1000, 16)):
        monkeypatch.setattr(attention, "BLOCK", block)
        monkeypatch.setattr(attention, "STRIP", strip)
        subject.zero_grad()
        logits = subject(input_ids=ids, attention_mask=mask, use_cache=False).logits
        logits[mask.bool()].square().mean().backward()
        found.append((logits[mask.bool()], {n: p.grad.clone() for n, p in subject.named_parameters()}))
    plain, plain_grad = found[0]
    for blocked, blocked_grad in found[1:]:
        torch.testing.assert_close(blocked, plain, atol=1e-9, rtol=0)
        for name, gradient in plain_grad.items():
            torch.testing.assert_close(blocked_grad[name], gradient, atol=1e-9, rtol=1e-7, msg=name)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.untyped_storage().nbytes() // x.element_size())
        return out


@pytest.mark.parametrize("train", [False, True])
def test_no_array_grows_with_the_square_of_the_length(train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times as many tokens: the largest array of prefill and training grows about four times, not sixteen."""
    monkeypatch.setattr(attention, "BLOCK", 64)
    subject, sizes = model(PLANS[0]), []
    for tokens in (512, 2048):
        with torch.set_grad_enabled(train), Largest() as largest:
            loss = subject(input_ids=torch.randint(50, (1, tokens)), use_cache=False).logits.sum()
            if train:
                loss.backward()
        sizes.append(largest.numel)
    assert sizes[1] <= 4.2 * sizes[0]
    assert sizes[1] < 2048 * 2048 // 8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_it_runs_on_cuda(dtype: torch.dtype) -> None:
    """Prefill and a backward pass on a GPU equal the CPU within what the type resolves."""
    subject, ids = model(PLANS[0]).to(dtype), torch.randint(50, (1, 700))
    here = subject(input_ids=ids, use_cache=False).logits
    there = subject.cuda()(input_ids=ids.cuda(), use_cache=False).logits
    there.sum().backward()
    tolerance = 1e-3 if dtype == torch.float32 else 0.3
    torch.testing.assert_close(there.cpu(), here, atol=tolerance, rtol=tolerance)


@torch.inference_mode()
def test_bfloat16_stays_near_float32() -> None:
    """The compressed model loses no more in bf16 than its precision explains."""
    subject, ids = model(PLANS[0]).float(), torch.randint(50, (1, 200))
    exact = subject(input_ids=ids).logits
    rough = subject.bfloat16()(input_ids=ids).logits.float()
    assert float((rough - exact).abs().mean()) < 0.02 * float(exact.abs().mean())
