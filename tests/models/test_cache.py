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


def model(plan: dict[str, Any], seed: int = 0, heads: int = 2) -> CompressedQwen3ForCausalLM:
    """Two layers of two KV heads with random weights, in float64."""
    torch.manual_seed(seed)
    config = CompressedQwen3Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=heads,
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


CSA = {
    "compressor": "csa",
    "width": 8,
    "stride": 4,
    "shift": 4,
    "tail": 20,
    "binding": True,
    "sink": True,
    "settings": {"topk": 4, "index_heads": 1, "index_dim": 8},
}


@torch.inference_mode()
def test_the_indexer_breaks_ties_alike_however_the_prompt_is_read() -> None:
    """Scores of exactly 0 are common; entries that follow must not change which of them are read."""
    subject, ids = model(CSA, heads=1), torch.randint(50, (2, 120))
    whole = subject(input_ids=ids, use_cache=False).logits
    cache = EntryCache(subject.config)
    read = [subject(input_ids=part, cache=cache).logits for part in ids.split(11, dim=1)]
    close(torch.cat(read, dim=1), whole)
    close(subject(input_ids=ids[:, :77], use_cache=False).logits, whole[:, :77])


@torch.inference_mode()
def test_assisted_decoding_works_with_a_long_tail_and_with_a_cache_of_the_user() -> None:
    """A tail longer than the prompt, and a DynamicCache whose layers are exchanged, can be rolled back."""
    given = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    for plan, heads in ((CSA, 1), (PLANS[0], 2)):
        subject, draft = model(plan, heads=heads), model(PLANS[1], seed=1)
        ids = torch.randint(1, 50, (1, 13))
        given["attention_mask"] = torch.ones_like(ids)
        greedy = subject.generate(ids, **given).tolist()
        assert subject.generate(ids, assistant_model=draft, **given).tolist() == greedy
        assert subject.generate(ids, assistant_model=draft, cache=DynamicCache(), **given).tolist() == greedy


@torch.inference_mode()
def test_one_padded_row_can_be_repeated_and_padded_rows_dropped() -> None:
    """What is kept of a row goes with it, its pads as well."""
    subject, ids, more = model(PLANS[0]), torch.randint(50, (2, 21)), torch.randint(50, (3, 9))
    mask = (torch.arange(21) >= torch.tensor([[0], [4]])).int()
    cache = subject(input_ids=ids[1:], attention_mask=mask[1:]).cache
    cache.batch_repeat_interleave(3)
    longer = torch.cat([mask[1:].expand(3, -1), torch.ones(3, 9, dtype=torch.int)], dim=1)
    together = subject(input_ids=more, attention_mask=longer, cache=cache).logits
    whole = torch.cat([ids[1:, 4:].expand(3, -1), more], dim=1)
    close(together, subject(input_ids=whole, use_cache=False).logits[:, 17:])
    cache = subject(input_ids=ids, attention_mask=mask).cache
    cache.batch_select_indices(torch.tensor([0]))
    alone = subject(input_ids=torch.cat([ids[:1], more[:1]], dim=1), use_cache=False).logits[:, 21:]
    close(subject(input_ids=more[:1], attention_mask=torch.ones(1, 30), cache=cache).logits, alone)


@torch.inference_mode()
def test_what_would_be_read_wrongly_is_refused() -> None:
    """The cache of another model, a mask of another length, a row of pads alone, and masks for the base model."""
    subject, other, ids = model(PLANS[0]), model(PLANS[0], seed=1), torch.randint(50, (2, 20))
    cache = subject(input_ids=ids).cache
    with pytest.raises(UsageError, match="another model"):
        other(input_ids=ids, cache=cache)
    old = subject(input_ids=ids, past_key_values=cache).logits
    close(old, subject(input_ids=torch.cat([ids, ids], dim=1), use_cache=False).logits[:, 20:])
    for mask, said in (
        (torch.ones(2, 19), "give \\[2, 20\\]"),
        (torch.ones(20), "give"),
        (torch.zeros(2, 20), "real"),
    ):
        with pytest.raises(UsageError, match=said):
            subject(input_ids=ids, attention_mask=mask)
    with pytest.raises(UsageError, match="position_ids"):
        subject(input_ids=ids, position_ids=torch.arange(19)[None])
    with pytest.raises(UsageError, match="base model"):
        subject.model(input_ids=ids, attention_mask=torch.arange(20).expand(2, -1) > 3)
    with pytest.raises(UsageError, match="no tokens"):
        subject(input_ids=ids[:, :0])
