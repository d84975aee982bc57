"""A cache that is read on from more than once stays what it was, on every kind of cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from phasescope.backends.transformers.cache import (
    ReservedLayer,
    branch,
    cache_bytes,
    expanded,
    reserve,
    same_rows,
)
from tests.builders.tiny_models import MODELS, ours, qwen3

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


def test_a_reserved_cache_appends_in_place_and_reads_as_any_other() -> None:
    """The same logits, no byte moved while there is room, and growth as usual beyond it."""
    torch.manual_seed(0)
    model = qwen3().eval()
    with torch.inference_mode():
        plain = model(input_ids=IDS[None, :10], use_cache=True).cache
        cache = model(input_ids=IDS[None, :10], use_cache=True).cache
        reserve(cache, 20)
        assert all(type(layer) is ReservedLayer for layer in cache.layers)
        place = cache.layers[0].keys.data_ptr()
        for start, end, kept in [(10, 15, True), (15, 20, True), (20, 26, False), (26, 30, False)]:
            logits, expected = (
                model(input_ids=IDS[None, start:end], cache=each, use_cache=True).logits
                for each in (cache, plain)
            )
            torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
            assert (cache.layers[0].keys.data_ptr() == place) == kept


def test_branches_and_rows_of_a_reserved_cache_leave_it_as_it_was() -> None:
    """A branch is cropped back and may be overwritten; rows have memory of their own."""
    torch.manual_seed(0)
    model = qwen3().eval()
    with torch.inference_mode():
        cache = model(input_ids=IDS[None, :10], use_cache=True).cache
        reserve(cache, 20)
        before = [layer.keys.clone() for layer in cache.layers]
        with branch(cache) as own:
            assert own is cache
            first = model(input_ids=IDS[None, 10:16], cache=own, use_cache=True).logits
        rows = expanded(cache, torch.tensor([0, 0]))
        twice = model(input_ids=IDS[10:16].expand(2, -1), cache=rows, use_cache=True).logits
        torch.testing.assert_close(twice, first.expand(2, -1, -1), rtol=0, atol=1e-5)
        assert cache.get_seq_length() == 10
        assert all(torch.equal(layer.keys, keys) for layer, keys in zip(cache.layers, before, strict=True))
