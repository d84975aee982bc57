"""Slot weights against torch, on checkpoints that `transformers` and this package wrote."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

from phasescope import UsageError
from phasescope.checkpoints import zoo
from phasescope.checkpoints.grids import overall, phase_prior, read_target

SHAPE = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "head_dim": 16,
    "q_lora_rank": 8,
    "o_lora_rank": 8,
    "o_groups": 2,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "partial_rotary_factor": 0.5,
    "compress_ratios": [0, 4, 128, 4],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny DeepSeek-V4 with random biases, in several shards."""
    torch.manual_seed(0)
    model = DeepseekV4ForCausalLM(DeepseekV4Config(**SHAPE))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("position_bias"):
                parameter.copy_(torch.randn_like(parameter) * 2)
    path = tmp_path_factory.mktemp("v4")
    model.save_pretrained(path, max_shard_size="50KB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return path


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def test_every_compressor_and_indexer_has_its_prior(folder: Path) -> None:
    """CSA has one of entries and one of its indexer, HCA one of entries; the weights sum to 1."""
    found = phase_prior(folder, read_target(folder))
    assert [(one.layer, one.role, str(one.grid)) for one in found] == [
        (1, "entries", "W8/S4+4"),
        (1, "indexer", "W8/S4+4"),
        (2, "entries", "W128/S128"),
        (3, "entries", "W8/S4+4"),
        (3, "indexer", "W8/S4+4"),
    ]
    for one in found:
        assert sum(one.slots) == pytest.approx(1)
        assert sum(one.phases) == pytest.approx(1)
        assert one.spread > 0


def test_the_prior_is_the_softmax_that_the_model_takes_over_equal_gates(folder: Path) -> None:
    """Ca of the window before, then Cb: the layout of `transformers`' own compressor."""
    tensors = weights_of(folder)
    for one in phase_prior(folder, read_target(folder)):
        bias = tensors[one.tensor]
        if one.grid.width > one.grid.stride:
            half = bias.shape[1] // 2
            bias = torch.cat([bias[:, :half], bias[:, half:]])
        slots = bias.softmax(dim=0).mean(dim=1)
        np.testing.assert_allclose(one.slots, slots.tolist(), rtol=1e-5)
        phases = slots.reshape(-1, one.grid.stride).sum(0)
        np.testing.assert_allclose(one.phases, phases.tolist(), rtol=1e-5)


def test_names_as_in_the_modules_and_bfloat16_are_read_as_well(folder: Path, tmp_path: Path) -> None:
    """`save_pretrained` writes DeepSeek's names (`ape`); converted checkpoints have those of the modules."""
    model = DeepseekV4ForCausalLM.from_pretrained(folder)
    biases = {name: t.bfloat16() for name, t in model.state_dict().items() if name.endswith("position_bias")}
    assert not biases.keys() & weights_of(folder).keys()
    save_file(biases, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_v4", **SHAPE}))
    ours, theirs = (phase_prior(path, read_target(path)) for path in (tmp_path, folder))
    assert [(one.layer, one.role) for one in ours] == [(one.layer, one.role) for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.phases, other.phases, atol=5e-3)


def test_a_planted_preference_is_found_and_a_flat_bias_favours_nothing(tmp_path: Path) -> None:
    """Phase 2 gets e times the weight of the others, in both windows that hold it."""
    bias = torch.zeros(4, 32)
    bias[2] = 1.0
    names = ["layers.1.attn.compressor.ape", "layers.3.attn.compressor.ape"]
    save_file({names[0]: bias, names[1]: torch.zeros(4, 32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_v4", **SHAPE}))
    planted, flat = phase_prior(tmp_path, read_target(tmp_path))
    assert planted.favoured == (2,)
    assert planted.phases[2] / planted.phases[0] == pytest.approx(np.e)
    assert (flat.favoured, flat.spread, flat.channel_spread) == ((), 0, 0)
    ((mean, count),) = overall([planted, flat])
    assert count == 2
    assert mean.phases[2] == pytest.approx((planted.phases[2] + 0.25) / 2)


def test_channels_that_cancel_out_show_in_the_channel_spread(tmp_path: Path) -> None:
    """Half of the channels prefer phase 0, half phase 1: flat on average, not within a channel."""
    bias = torch.zeros(4, 32)
    bias[0, ::2], bias[1, 1::2] = 3.0, 3.0
    save_file({"layers.1.attn.compressor.ape": bias}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_v4", **SHAPE}))
    (one,) = phase_prior(tmp_path, read_target(tmp_path))
    assert one.phases[0] == pytest.approx(one.phases[1])
    assert one.channel_spread > 2


@pytest.mark.parametrize("name", ["w8s4-1kv", "w8s8-4kv"])
def test_the_zoo_shows_the_slot_bias_of_its_scalar_gates(name: str) -> None:
    """One prior per layer and KV head; the slots of a phase are added up."""
    folder = zoo.folder(name)
    found = phase_prior(folder, read_target(folder))
    tensors = load_file(folder / "model.safetensors")
    assert len(found) == 2 * (zoo.card(name).kv_heads or 0)
    for one in found:
        assert one.head is not None
        slots = tensors[one.tensor][one.head, :, 0].softmax(0)
        np.testing.assert_allclose(one.slots, slots.tolist(), rtol=1e-5)
        np.testing.assert_allclose(one.phases, slots.reshape(-1, one.grid.stride).sum(0).tolist(), rtol=1e-5)


def refuse(tmp_path: Path, bias: torch.Tensor, **config: Any) -> str:
    save_file({"layers.1.attn.compressor.ape": bias}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_v4", **SHAPE, **config}))
    with pytest.raises(UsageError) as caught:
        phase_prior(tmp_path, read_target(tmp_path))
    return str(caught.value)


def test_a_bias_that_does_not_fit_the_grid_or_is_not_finite_is_refused(tmp_path: Path) -> None:
    """Config and weights of different checkpoints, or a broken one."""
    assert "does not fit windows of W8/S4+4" in refuse(tmp_path, torch.zeros(3, 32))
    assert "does not fit windows of W8/S4+4" in refuse(tmp_path, torch.zeros(4, 31))
    assert "does not fit" in refuse(tmp_path, torch.zeros(4, 32), compress_ratios=[0, 128, 4, 4])
    assert "not finite" in refuse(tmp_path, torch.full((4, 32), torch.nan))


def test_biases_of_layers_without_a_grid_are_passed_over(tmp_path: Path) -> None:
    """Layers for drafting, and relative position biases of other models, are none of it."""
    names = [
        "layers.9.attn.compressor.ape",
        "layers.1.self_attn.relative_position_bias",
        "mtp.0.attn.compressor.ape",
    ]
    save_file({name: torch.zeros(2, 2) for name in names}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_v4", **SHAPE}))
    assert phase_prior(tmp_path, read_target(tmp_path)) == ()
