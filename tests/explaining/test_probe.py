"""Gates read from running models, and rolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from phasescope.explaining.hooks import find_attention_hooks
from phasescope.explaining.probe import gates, has_bias, priors, rolled

from .conftest import MODELS, ours

IDS = torch.arange(40)[None] % 60


def reads(model: Any, ids: torch.Tensor = IDS) -> list[Any]:
    """The gates of one forward."""
    with torch.inference_mode(), gates(find_attention_hooks(model)) as seen:
        model(input_ids=ids)
        return seen()


@pytest.mark.parametrize("kind", ["scalar_gate", "vector_gate", "uniform"])
def test_the_weights_make_the_entries(kind):
    """Keys pooled with the weights that were read are the compressor's own entries."""
    model = ours(compressor=kind, width=8, stride=4)
    attention = model.model.layers[0].self_attn
    seen: dict[str, Any] = {}
    given = attention.compressor.entries

    def entries(key: Any, value: Any, state: Any) -> Any:
        seen["key"], seen["made"] = key, given(key, value, state)
        return seen["made"]

    attention.compressor.entries = entries
    (first, _) = reads(model)
    window = seen["key"].unfold(2, 8, 4).transpose(3, 4).double().numpy()
    pooled = (first.weight_BHNWC * window).sum(3)
    assert pooled == pytest.approx(seen["made"].key_BHND.double().numpy(), abs=1e-5)
    assert first.weight_BHNWC.sum(axis=3) == pytest.approx(1)
    assert first.grids[0].width == 8


def test_deepseek_v4s_gates_make_its_entries():
    """Its projections pooled with the weights that were read, and normed, are its compressor's output."""
    model = MODELS["deepseek_v4"]()
    torch.nn.init.normal_(model.model.layers[1].self_attn.compressor.position_bias)
    compressor = model.model.layers[1].self_attn.compressor
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        compressor.kv_proj.register_forward_hook(lambda m, a, out: seen.update(kv=out)),
        compressor.kv_norm.register_forward_hook(lambda m, a, out: seen.update(entries=out)),
    ]
    csa, hca = reads(model)
    for hook in hooks:
        hook.remove()
    assert (csa.layer, csa.grids[0].width, csa.grids[0].stride, csa.grids[0].shift) == (1, 8, 4, 4)
    assert (hca.layer, hca.grids[0].width, hca.grids[0].stride) == (2, 16, 16)
    assert csa.raw == 16
    left, own = seen["kv"].double().unflatten(1, (10, 4)).chunk(2, dim=-1)
    before = torch.cat([torch.zeros_like(left[:, :1]), left[:, :-1]], dim=1)
    pooled = (torch.from_numpy(csa.weight_BHNWC[:, 0]) * torch.cat([before, own], dim=2)).sum(2)
    expected = pooled / (pooled.pow(2).mean(-1, keepdim=True) + compressor.kv_norm.variance_epsilon).sqrt()
    assert torch.allclose(expected * compressor.kv_norm.weight.double(), seen["entries"].double(), atol=1e-4)


def test_priors_are_the_softmax_of_the_bias():
    """By layer and head; DeepSeek-V4's two series stand one after the other."""
    model = ours()
    found = priors(find_attention_hooks(model))
    bias = model.model.layers[1].self_attn.compressor.slot_bias
    assert found[1] == pytest.approx(bias.softmax(1)[..., 0].detach().double().numpy())
    theirs = priors(find_attention_hooks(MODELS["deepseek_v4"]()))
    assert sorted(theirs) == [1, 2]
    assert theirs[1].shape == (1, 8)
    assert theirs[2].shape == (1, 16)
    assert not priors(find_attention_hooks(MODELS["qwen3"]()))


@pytest.mark.parametrize("name", ["two heads", "one grid a head", "deepseek_v4"])
def test_a_roll_moves_the_prior_and_is_undone(name):
    """Slot s gets what slot s − 3 had; afterwards every weight has its own bytes."""
    model = MODELS[name]()
    found_hooks = find_attention_hooks(model)
    assert has_bias(found_hooks)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    untouched = priors(found_hooks)
    with rolled(found_hooks, 3):
        for layer, prior in priors(found_hooks).items():
            assert prior == pytest.approx(np.roll(untouched[layer], 3, axis=1), abs=1e-6)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_uniform_gate_has_no_bias_to_roll():
    """Rolling it would be measuring the same again."""
    assert not has_bias(find_attention_hooks(ours(compressor="uniform")))
    assert not has_bias(find_attention_hooks(MODELS["llama"]()))


def test_heads_of_shifted_grids_are_read_where_all_have_a_window():
    """The grids of a layer may complete one window more or less; only windows of all heads are read."""
    (first, _) = reads(MODELS["one grid a head"]())
    assert [grid.shift for grid in first.grids] == [0, 4]
    assert first.weight_BHNWC.sum(axis=3) == pytest.approx(1)
    complete = min(grid.closed(40) for grid in first.grids)
    assert first.weight_BHNWC.shape[2] in (complete, complete - 1)
