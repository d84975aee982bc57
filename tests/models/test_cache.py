"""The streaming cache forgets only what no later query can need, and gives back what it is asked to undo."""

import copy
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from phasescope import UsageError
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM, EntryCache

PLANS: list[dict[str, Any]] = [
    {"compressor": "scalar_gate", "width": 8, "stride": 8},
    {"compressor": "vector_gate", "width": 8, "stride": 4, "shift": 4},
    {"compressor": "scalar_gate", "width": 8, "stride": 6, "shift": ((0, 5), (7, 2)), "tail": 11},
    {"compressor": "uniform", "width": 7, "stride": 3, "shift": ((1, 0), (0, 6)), "sink": True},
    {"compressor": "scalar_gate", "width": 3, "stride": 5},
    {"compressor": "uniform", "width": 1, "stride": 1},
    {"compressor": "vector_gate", "width": 12, "stride": 12, "binding": True, "rotary": 0.5},
    {"compressor": "scalar_gate", "width": 8, "stride": 4, "binding": True, "rotary": 0.0, "tail": 3},
    {"compressor": "dynamic", "width": 12, "stride": 6, "settings": {"minimum": 3, "seed": 1}},
    {"compressor": "dynamic", "width": 9, "stride": 4, "binding": True, "tail": 5},
]
DENSE = [plan for plan in PLANS if plan["width"] >= plan["stride"]]
every_plan = pytest.mark.parametrize("plan", PLANS, ids=str)


def model(plan: dict[str, Any], seed: int = 0) -> CompressedQwen3ForCausalLM:
    """Two layers of two KV heads with random weights, in float64."""
    torch.manual_seed(seed)
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
    built = CompressedQwen3ForCausalLM(config).double().eval()
    for name, parameter in built.named_parameters():
        if "slot_bias" in name or "sinks" in name:
            torch.nn.init.normal_(parameter)
    return built


def close(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal up to what a float32 rotary embedding and norm leave."""
    torch.testing.assert_close(mine, theirs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("parts", [[1] * 61, [30, 1, 1, 1, 20, 8], [7, 54], [3, 3, 9, 1, 45]], ids=str)
@every_plan
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
    close(torch.cat(read, dim=1), whole)


@pytest.mark.parametrize("plan", DENSE, ids=str)
@torch.inference_mode()
def test_raw_tokens_do_not_pile_up(plan: dict[str, Any]) -> None:
    """A window, a stride and the tail stay raw at most; entries grow by one per stride, or shortest window."""
    shortest = plan["stride"]
    if plan["compressor"] == "dynamic":
        shortest = plan.get("settings", {}).get("minimum", 1)
    subject, cache = model(plan), DynamicCache()
    for _ in range(40):
        subject(input_ids=torch.randint(50, (1, 5)), cache=cache, use_cache=True)
        for layer in cache.layers:
            assert layer.raw_key.shape[2] <= max(2 * plan["width"] + plan["stride"], plan.get("tail", 0))
            assert layer.state.shape[2] <= 2 * plan["width"] + plan["stride"]
    for layer in cache.layers:
        assert layer.keys.shape[2] <= 200 // shortest + 2


@torch.inference_mode()
def test_rows_can_be_repeated_and_dropped() -> None:
    """Every part of the state follows, so that each row goes on as its own sequence would."""
    subject, ids, more = model(PLANS[2]), torch.randint(50, (3, 33)), torch.randint(50, (4, 9))
    rows = torch.tensor([2, 0, 0, 1])
    whole = subject(input_ids=torch.cat([ids[rows], more], dim=1), use_cache=False).logits[:, 33:]
    for way in ("reorder_cache", "batch_select_indices"):
        cache = subject(input_ids=ids, use_cache=True).cache
        getattr(cache, way)(rows)
        close(subject(input_ids=more, cache=cache).logits, whole)
    cache = subject(input_ids=ids[:2], use_cache=True).cache
    cache.batch_repeat_interleave(2)
    whole = subject(input_ids=torch.cat([ids[[0, 0, 1, 1]], more], dim=1), use_cache=False).logits[:, 33:]
    close(subject(input_ids=more, cache=cache).logits, whole)


@torch.inference_mode()
def test_a_reset_cache_starts_anew() -> None:
    """The same object reads another sequence as a fresh one would."""
    subject, ids = model(PLANS[1]), torch.randint(50, (1, 20))
    cache = subject(input_ids=torch.randint(50, (1, 13)), use_cache=True).cache
    cache.reset()
    close(subject(input_ids=ids, cache=cache).logits, subject(input_ids=ids, use_cache=False).logits)


@every_plan
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


@pytest.mark.parametrize("parts", [[41], [20, *[1] * 21], [25, 9, 7]], ids=str)
@every_plan
@torch.inference_mode()
def test_left_padded_rows_are_read_as_they_would_be_alone(plan: dict[str, Any], parts: list[int]) -> None:
    """Rows with 0 to 19 pads, in one pass, in parts and token by token: real logits as of the row alone."""
    subject, ids, pads = model(plan), torch.randint(50, (5, 41)), [0, 3, 8, 13, 19]
    mask = torch.arange(41) >= torch.tensor(pads)[:, None]
    cache, read, end = EntryCache(subject.config), [], 0
    for part in ids.split(parts, dim=1):
        end += part.shape[1]
        read.append(subject(input_ids=part, attention_mask=mask[:, :end].int(), cache=cache).logits)
    for row, pad in enumerate(pads):
        alone = subject(input_ids=ids[row : row + 1, pad:]).logits[0]
        close(torch.cat(read, dim=1)[row, pad:], alone)


@every_plan
@torch.inference_mode()
def test_left_padded_batches_generate_what_each_row_generates(plan: dict[str, Any]) -> None:
    """`generate` on a left-padded batch equals `generate` on each row, though windows close at other steps."""
    subject, ids, pads = model(plan), torch.randint(1, 50, (4, 23)), [0, 2, 7, 12]
    mask = (torch.arange(23) >= torch.tensor(pads)[:, None]).int()
    given = {"max_new_tokens": 21, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    together = subject.generate(input_ids=ids * mask, attention_mask=mask, **given)[:, 23:]
    for row, pad in enumerate(pads):
        own = ids[row : row + 1, pad:]
        alone = subject.generate(input_ids=own, attention_mask=torch.ones_like(own), **given)
        assert together[row].tolist() == alone[0, 23 - pad :].tolist()


@every_plan
@torch.inference_mode()
def test_a_recording_cache_can_be_cropped_to_any_length(plan: dict[str, Any]) -> None:
    """After activate_past_recording, going back and reading on equals never having read further."""
    subject, ids = model(plan), torch.randint(50, (2, 47))
    whole = subject(input_ids=ids, use_cache=False).logits
    cache = EntryCache(subject.config)
    subject(input_ids=ids[:, :20], cache=cache)
    cache.activate_past_recording()
    other = torch.randint(50, (2, 27))
    beyond = subject(input_ids=torch.cat([ids[:, :20], other], dim=1), use_cache=False).logits
    subject(input_ids=other, cache=cache)
    for kept in (39, 32, 31, 20):
        cache.crop(kept - cache.get_seq_length())
        assert cache.get_seq_length() == kept
        close(subject(input_ids=other[:, kept - 20 :], cache=copy.deepcopy(cache)).logits, beyond[:, kept:])
    close(subject(input_ids=ids[:, 20:], cache=cache).logits, whole[:, 20:])


@torch.inference_mode()
def test_a_crop_into_folded_windows_is_refused_and_one_behind_them_is_exact() -> None:
    """Without recording, only the tokens of the unfinished window can be taken back."""
    subject, ids = model(PLANS[0]), torch.randint(50, (1, 40))
    cache = subject(input_ids=ids[:, :21]).cache
    cache.crop(-3)
    close(
        subject(input_ids=ids[:, 18:], cache=cache).logits,
        subject(input_ids=ids, use_cache=False).logits[:, 18:],
    )
    cache = subject(input_ids=ids[:, :21]).cache
    with pytest.raises(UsageError, match="activate_past_recording"):
        cache.crop(-6)


@torch.inference_mode()
def test_assisted_decoding_is_exact() -> None:
    """A draft model's tokens are taken back where they were wrong: the same text as greedy decoding."""
    subject, draft, ids = model(PLANS[0]), model(PLANS[1], seed=1), torch.randint(1, 50, (1, 19))
    given = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    given["attention_mask"] = torch.ones_like(ids)
    greedy = subject.generate(ids, **given)
    assert subject.generate(ids, assistant_model=draft, **given).tolist() == greedy.tolist()
    assert subject.generate(ids, prompt_lookup_num_tokens=3, **given).tolist() == greedy.tolist()
