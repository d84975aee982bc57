"""The compressed Qwen3: equal to plain Qwen3 without compression, exact in parts, and a good citizen."""

import gc
import os

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from phasescope import UnknownNameError, UsageError
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM
from phasescope.models.attention import Reads

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
W8S8 = {"compressor": "scalar_gate", "width": 8, "stride": 8}


def build(compression=None, **shape):
    torch.manual_seed(0)
    return CompressedQwen3ForCausalLM(
        CompressedQwen3Config(compression=compression, **{**SHAPE, **shape})
    ).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(96, (2, 45), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("compression", [None, {"compressor": "vector_gate", "width": 1, "stride": 1}])
def test_without_compression_or_with_windows_of_one_token_it_is_plain_qwen3(compression, ids):
    """Same weights, same logits to 1e-6."""
    ours, plain = build(compression), Qwen3ForCausalLM(Qwen3Config(**SHAPE)).eval()
    plain.load_state_dict({k: v for k, v in ours.state_dict().items() if ".compressor." not in k})
    torch.testing.assert_close(ours(input_ids=ids).logits, plain(input_ids=ids).logits, rtol=0, atol=1e-6)


@torch.no_grad()
def test_attention_equals_a_loop_over_queries(ids):
    """One layer against a reference written query by query from the definition of the raw set."""
    model = build({**W8S8, "width": 6, "stride": 4, "shift": 2, "visibility": "closing"}, num_hidden_layers=1)
    layer = model.model.layers[0].self_attn
    torch.nn.init.normal_(layer.compressor.slot_bias)
    hidden = torch.randn(1, 30, 32)
    mine = layer(hidden, model.model.rotary_emb(hidden, torch.arange(30)[None]), None)[0]
    grid = layer.compressor.grids[0]
    key = layer.k_norm(layer.k_proj(hidden).view(1, 30, 2, 16))[0]
    value = layer.v_proj(hidden).view(30, 2, 16)
    query = layer.q_norm(layer.q_proj(hidden).view(1, 30, 4, 16))[0]
    gate = layer.compressor.gate(hidden)[0]

    def turn(x, position):
        cos, sin = model.model.rotary_emb(x, torch.tensor([[position]]))
        half = torch.cat([-x[8:], x[:8]])
        return x * cos[0, 0] + half * sin[0, 0]

    for q in range(30):
        windows = [w for w in range(30) if grid.closes(w) <= q]
        covered = {t for w in windows for t in range(grid.start(w), grid.closes(w) + 1)}
        heads = []
        for head in range(4):
            kv, reads = head // 2, []
            for w in windows:
                tokens = [t for t in range(grid.start(w), grid.closes(w) + 1) if t >= 0]
                bias = layer.compressor.slot_bias[kv, :, 0]
                weight = torch.stack([gate[t, kv] + bias[t - grid.start(w)] for t in tokens]).softmax(0)
                mixed = [sum(a * x[t, kv] for a, t in zip(weight, tokens, strict=True)) for x in (key, value)]
                reads.append((turn(mixed[0], max(0, grid.start(w))), mixed[1]))
            reads += [(turn(key[t, kv], t), value[t, kv]) for t in range(q + 1) if t not in covered]
            scores = torch.stack([turn(query[q, head], q) @ k for k, _ in reads]) * 16**-0.5
            heads.append(sum(a * v for a, (_, v) in zip(scores.softmax(0), reads, strict=True)))
        torch.testing.assert_close(mine[0, q], layer.o_proj(torch.cat(heads)), rtol=1e-4, atol=1e-5)


def test_a_tail_window_adds_the_last_tokens_raw_and_takes_nothing_away():
    """With tail n the query also reads the last n tokens, covered or not."""
    compressor = build(W8S8).model.layers[0].self_attn.compressor
    zeros = torch.zeros(1, 2, 20, 16)
    entries = compressor.entries(zeros, zeros, torch.zeros(1, 2, 20, 1))
    reads = Reads(zeros, zeros, None, entries.last_token_BHN, zeros, zeros, entries.visible_from_BHT, 0, 0)
    plain, tail = (torch.cat(reads.visible(0, 20, n), dim=-1)[0, 0] for n in (0, 5))
    assert plain[17, 2:].nonzero().flatten().tolist() == [16, 17]
    assert tail[17, 2:].nonzero().flatten().tolist() == [13, 14, 15, 16, 17]
    assert bool((tail | ~plain).all())


@torch.no_grad()
def test_it_saves_and_loads_through_the_auto_classes(tmp_path, ids):
    """The folder names our model type, and the loaded model gives the same logits."""
    model = build(W8S8)
    model.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).plan.stride == 8
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(loaded, CompressedQwen3ForCausalLM)
    torch.testing.assert_close(loaded(input_ids=ids).logits, model(input_ids=ids).logits, rtol=0, atol=1e-6)


@pytest.fixture
def unset_memory_is_nan():
    """Memory that nobody writes to holds NaN, and not by luck the right zeros."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "compression",
    [
        {**W8S8, "sink": True},
        {"compressor": "dynamic", "width": 12, "stride": 6},
        {"compressor": "hca", "width": 4, "stride": 4, "tail": 4, "binding": True},
    ],
    ids=lambda plan: plan["compressor"],
)
@pytest.mark.usefixtures("unset_memory_is_nan")
def test_a_plain_qwen3_checkpoint_loads_and_what_it_lacks_begins_as_in_a_new_model(tmp_path, compression):
    """Slot biases, sinks, position biases and hashes are those of a model built anew; loaded weights stay."""
    ours = build(compression, num_key_value_heads=1)
    plain = Qwen3ForCausalLM(Qwen3Config(**{**SHAPE, "num_key_value_heads": 1}))
    plain.save_pretrained(tmp_path)
    loaded = CompressedQwen3ForCausalLM.from_pretrained(tmp_path, config=ours.config)
    for name, tensor in loaded.state_dict().items():
        if name in plain.state_dict():
            assert torch.equal(tensor, plain.state_dict()[name])
        elif "proj" in name or "gate" in name:
            assert float(tensor.std()) == pytest.approx(0.02, rel=0.3)  # drawn as Qwen3's
        else:
            assert torch.equal(tensor, ours.state_dict()[name]), name


@torch.no_grad()
@pytest.mark.parametrize("settings", [{"num_beams": 1}, {"num_beams": 3}])
def test_generate_equals_recomputing_the_whole_prompt(settings, ids):
    """Greedy and beam search over the cache give what a model without a cache gives."""
    model = build(W8S8)
    # Without a mask, generate would take every token 0 of the prompt for padding.
    fixed = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 12,
        "do_sample": False,
        "pad_token_id": 0,
    }
    fixed |= settings
    assert model.generate(ids, **fixed).tolist() == model.generate(ids, use_cache=False, **fixed).tolist()


@torch.no_grad()
def test_masks_and_positions_that_would_shift_the_grid_are_refused(ids):
    """A token hidden between real ones, or a skipped position, is an error instead of a wrong answer."""
    model, mask = build(W8S8), torch.ones_like(ids)
    mask[0, 3] = 0
    with pytest.raises(UsageError, match="pad on the left"):
        model(input_ids=ids, attention_mask=mask)
    with pytest.raises(UsageError, match="position_ids"):
        model(input_ids=ids, position_ids=torch.arange(3, 48)[None])


@pytest.mark.parametrize(
    ("compression", "said"),
    [
        (
            {"compressor": "scaler", "width": 8, "stride": 8},
            "unknown compressor 'scaler'; known: csa, dynamic, hca, scalar_gate",
        ),
        ({"compressor": "uniform", "width": 0, "stride": 8}, "width is 0; give at least 1"),
        ({"compressor": "uniform", "width": 8, "stride": 8, "shift": 8}, "below the width"),
        ({"compressor": "uniform", "width": 8, "stride": 8, "shift": [0, 1, 2]}, "does not fit 2 layers"),
        ({"compressor": "uniform", "width": 8}, "stride"),
        ({"compressor": "uniform", "width": 8, "stride": 8, "sride": 4}, "sride"),
        ({"compressor": "uniform", "width": 8, "stride": 8, "rotary": 0.2}, "come in pairs"),
        ({"compressor": "uniform", "width": 8, "stride": 8, "rotary": 0.01}, "or rotary is 0"),
        ("W8/S8", "give its fields by name"),
        ({"compressor": "uniform", "width": 8, "stride": 8, "settings": {"topk": 4}}, "has no setting topk"),
    ],
)
def test_a_wrong_compression_is_one_clear_line(compression, said):
    """The message says what was given and what is allowed."""
    with pytest.raises((UsageError, UnknownNameError), match=said):
        CompressedQwen3Config(compression=compression, **SHAPE)


@pytest.mark.slow
def test_a_qwen3_of_the_size_of_0_6b_takes_a_training_step():
    """The real configuration builds with random weights, and its loss falls on the batch it steps on."""
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") < 12 * 2**30:
        pytest.skip("a Qwen3-0.6B with gradients and updates needs 12 GiB of free memory")
    config = CompressedQwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        compression=W8S8,
    )
    model = CompressedQwen3ForCausalLM(config)
    assert 590e6 < sum(p.numel() for p in model.parameters()) < 610e6
    ids = torch.randint(151936, (1, 40), generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(2):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        losses.append(loss.item())
        if len(losses) == 1:
            loss.backward()
            with torch.no_grad():
                for param in model.parameters():
                    param.sub_(param.grad, alpha=0.1)
    assert losses[1] < losses[0]
    del model, loss
    gc.collect()
