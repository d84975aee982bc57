"""A cache that is read on from more than once stays what it was, on every kind of cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.backends.tiny_models import MODELS, ours, qwen3

from phasescope.backends.transformers_cache import branch, cache_bytes, expanded, same_rows

IDS = torch.arange(34).remainder(16)


@pytest.fixture(params=MODELS)
def read(request: pytest.FixtureRequest) -> Any:
    """A model of each kind, and how it reads on from a cache."""
    torch.manual_seed(0)
    model = MODELS[request.param]().eval()

    def forward(ids: torch.Tensor, cache: Any) -> Any:
        with torch.inference_mode():
            return model(input_ids=ids, cache=cache, use_cache=True)

    return forward


def test_a_branch_leaves_the_cache_as_it_was(read: Any) -> None:
    """The same continuation gives the same logits after others were read on a branch, across window ends."""
    cache = read(IDS[None, :30], None).cache
    with branch(cache) as own:
        first = read(IDS[None, 30:], own).logits
    with branch(cache) as own:
        read(IDS[None, :7], own)
    assert cache.get_seq_length() == 30
    torch.testing.assert_close(read(IDS[None, 30:], cache).logits, first, rtol=0, atol=1e-5)


def test_an_expanded_cache_repeats_rows_and_leaves_the_first_as_it_was(read: Any) -> None:
    """Three rows of two, read on, give what each row alone gives."""
    two = torch.stack([IDS[:30], IDS[:30].flip(0)])
    cache = read(two, None).cache
    own = expanded(cache, torch.tensor([1, 0, 1]))
    after = read(IDS[30:].expand(3, -1), own).logits
    for row, source in enumerate([1, 0, 1]):
        alone = read(torch.cat([two[source], IDS[30:]])[None], None).logits[:, 30:]
        torch.testing.assert_close(after[row : row + 1], alone, rtol=0, atol=1e-4)
    again = read(IDS[30:].expand(2, -1), cache).logits
    torch.testing.assert_close(again, after[[1, 0]], rtol=0, atol=1e-5)


def test_a_branch_of_a_cache_that_only_appends_is_no_copy() -> None:
    """The object itself is lent and cropped back, so that a long prefix is never held twice."""
    model = qwen3()
    with torch.inference_mode():
        cache = model(input_ids=IDS[None], use_cache=True).cache
        size = cache_bytes(cache)
        with branch(cache) as own:
            assert own is cache
            model(input_ids=IDS[None, :3], cache=own, use_cache=True)
            assert cache_bytes(cache) > size
    assert cache_bytes(cache) == size == 2 * 2 * 2 * 16 * 4 * len(IDS)


def test_a_branch_of_folded_entries_is_a_copy() -> None:
    """What was folded can't be undone."""
    with torch.inference_mode():
        cache = ours({"compressor": "uniform", "width": 8, "stride": 8})(
            input_ids=IDS[None], use_cache=True
        ).cache
    with branch(cache) as own:
        assert own is not cache


def test_same_rows_is_the_identity_only() -> None:
    """Reordering by it is saved."""
    assert same_rows(torch.tensor([0, 1]), 2)
    assert not same_rows(torch.tensor([1, 0]), 2)
    assert not same_rows(torch.tensor([0]), 2)
