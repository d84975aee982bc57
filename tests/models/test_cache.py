"""The streaming cache forgets only what no later query can need."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache

from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM

PLANS = [
    {"compressor": "scalar_gate", "width": 8, "stride": 8},
    {"compressor": "vector_gate", "width": 8, "stride": 4, "shift": 4},
    {"compressor": "scalar_gate", "width": 8, "stride": 6, "shift": ((0, 5), (7, 2)), "tail": 11},
    {"compressor": "uniform", "width": 7, "stride": 3, "shift": ((1, 0), (0, 6))},
    {"compressor": "scalar_gate", "width": 3, "stride": 5},
    {"compressor": "uniform", "width": 1, "stride": 1},
]


def model(plan: dict[str, Any]) -> CompressedQwen3ForCausalLM:
    """Two layers of two KV heads with random weights, in float64."""
    torch.manual_seed(0)
    config = CompressedQwen3Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.5,
        compression=plan,
    )
    return CompressedQwen3ForCausalLM(config).double().eval()


@pytest.mark.parametrize("parts", [[1] * 61, [30, 1, 1, 1, 20, 8], [7, 54], [3, 3, 9, 1, 45]], ids=str)
@pytest.mark.parametrize("plan", PLANS, ids=str)
@torch.inference_mode()
def test_reading_in_parts_gives_the_logits_of_one_pass(plan: dict[str, Any], parts: list[int]) -> None:
    """Whatever was forgotten between the parts is not missed, to 1e-9."""
    subject, ids = model(plan), torch.randint(50, (2, 61))
    whole = subject(input_ids=ids, use_cache=False).logits
    cache, read = None, []
    for part in ids.split(parts, dim=1):
        out = subject(input_ids=part, cache=cache, use_cache=True)
        cache = out.cache
        read.append(out.logits)
    assert cache.get_seq_length() == 61
    torch.testing.assert_close(torch.cat(read, dim=1), whole, atol=1e-9, rtol=0)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan["width"] >= plan["stride"]], ids=str)
@torch.inference_mode()
def test_raw_tokens_do_not_pile_up(plan: dict[str, Any]) -> None:
    """Two windows, a stride and the tail stay raw at most; entries grow by one per stride (and grid)."""
    subject, cache = model(plan), DynamicCache()
    for _ in range(40):
        subject(input_ids=torch.randint(50, (1, 5)), cache=cache, use_cache=True)
        for layer in cache.layers:
            assert layer.raw_BHTP.shape[2] <= 2 * plan["width"] + plan["stride"] + plan.get("tail", 0)
    for layer in cache.layers:
        assert layer.keys.shape[2] <= 2 * (200 // plan["stride"] + plan["width"])


@torch.inference_mode()
def test_rows_can_be_repeated_and_dropped() -> None:
    """Every part of the state follows, so that each row goes on as its own sequence would."""
    subject, ids, more = model(PLANS[2]), torch.randint(50, (3, 33)), torch.randint(50, (4, 9))
    rows = torch.tensor([2, 0, 0, 1])
    whole = subject(input_ids=torch.cat([ids[rows], more], dim=1), use_cache=False).logits[:, 33:]
    for way in ("reorder_cache", "batch_select_indices"):
        cache = subject(input_ids=ids, use_cache=True).cache
        getattr(cache, way)(rows)
        torch.testing.assert_close(subject(input_ids=more, cache=cache).logits, whole, atol=1e-9, rtol=0)
    cache = subject(input_ids=ids[:2], use_cache=True).cache
    cache.batch_repeat_interleave(2)
    whole = subject(input_ids=torch.cat([ids[[0, 0, 1, 1]], more], dim=1), use_cache=False).logits[:, 33:]
    torch.testing.assert_close(subject(input_ids=more, cache=cache).logits, whole, atol=1e-9, rtol=0)


@torch.inference_mode()
def test_a_reset_cache_starts_anew() -> None:
    """The same object reads another sequence as a fresh one would."""
    subject, ids = model(PLANS[1]), torch.randint(50, (1, 20))
    cache = subject(input_ids=torch.randint(50, (1, 13)), use_cache=True).cache
    cache.reset()
    again = subject(input_ids=ids, cache=cache).logits
    torch.testing.assert_close(again, subject(input_ids=ids, use_cache=False).logits, atol=1e-9, rtol=0)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@torch.inference_mode()
def test_generate_continues_as_the_model_without_cache(plan: dict[str, Any]) -> None:
    """`generate` brings its own cache; the greedy continuation is the same."""
    subject, ids = model(plan), torch.randint(50, (2, 19))
    given = {"max_new_tokens": 15, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with_cache = subject.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **given)
    greedy = ids
    for _ in range(15):
        step = subject(input_ids=greedy, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        greedy = torch.cat([greedy, step], dim=1)
    assert with_cache.tolist() == greedy.tolist()
