"""Cross-entropy a few rows at a time against the plain form."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from phasescope.training import loss
from phasescope.training.loss import CrossEntropy
from tests.models.test_attention import Largest


def drawn(rows, vocabulary, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 8, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(vocabulary, 8, generator=generator, dtype=dtype).requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (rows,), generator=generator)


def both(hidden, weight, target, share=None):
    """Loss, hits and the gradients of 3 × loss, plain and in parts."""
    logits = (hidden @ weight.T).float() if hidden.dtype != torch.float64 else hidden @ weight.T
    each = cross_entropy(logits, target, reduction="none")
    plain = (each if share is None else each * share).mean()
    hits = (logits.argmax(1) == target).double().mean()
    yield plain, hits, *torch.autograd.grad(3 * plain, (hidden, weight))
    found, hit, one_by_one = CrossEntropy.apply(hidden, weight, target, share)
    torch.testing.assert_close(one_by_one.to(each), each.detach(), atol=1e-5, rtol=1e-5)
    yield found, hit, *torch.autograd.grad(3 * found, (hidden, weight))


@pytest.mark.parametrize("rows", [1, 12, 13])
def test_parts_of_rows_give_the_plain_loss_and_gradients(rows, monkeypatch):
    """Whole and unfinished parts of 4 rows, in float64; the weight of the loss goes into the gradients."""
    monkeypatch.setattr(loss, "LEAST_ROWS", 4)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", {"cpu": 1})
    plain, found = both(*drawn(rows, 30))
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(other.double(), one, atol=1e-6, rtol=1e-6)


def test_targets_may_weigh_more(monkeypatch):
    """Each loss and its gradient are multiplied; the loss is the mean of the products."""
    monkeypatch.setattr(loss, "LEAST_ROWS", 4)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", {"cpu": 1})
    share = torch.rand(13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, found = both(*drawn(13, 30), share)
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(other.double(), one, atol=1e-6, rtol=1e-6)


def test_bfloat16_by_autocast_is_that_of_the_plain_form():
    """Logits come from the same bfloat16 product, and sums are made in float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain, found = both(*drawn(40, 30, torch.float32))
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found[0], plain[0], atol=1e-5, rtol=1e-5)
    for one, other in zip(plain[2:], found[2:], strict=True):
        assert (other - one).norm() < 0.01 * one.norm()


def test_all_logits_are_never_held_at_once(monkeypatch):
    """The largest array is that of one part."""
    monkeypatch.setattr(loss, "LEAST_ROWS", 4)
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", {"cpu": 1})
    given = drawn(100, 200)
    with Largest() as largest:
        CrossEntropy.apply(*given)[0].backward()
    assert largest.numel == 200 * 8  # the output matrix
    assert 4 * 200 < largest.numel < 100 * 200
