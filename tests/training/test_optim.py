"""Which optimizer moves what, and how far."""

from itertools import pairwise

import pytest
import torch

from phasescope.training import Training
from phasescope.training.muon import Muon
from phasescope.training.optim import optimizers_of, schedule, set_step_sizes
from phasescope.training.trainer import new_model
from tests.builders.corpora import FOURS, SHAPE, made_task

SIZES = {"lr_matrices": 0.03, "lr_gates": 0.02, "lr_rest": 0.01, "weight_decay": 0.5}


def grouped(optimizer_name):
    """The optimizer, step size and decay of every parameter, by name."""
    settings = Training(**SHAPE, task=made_task(), compression=FOURS, optimizer=optimizer_name, **SIZES)
    model = new_model(settings)
    names = {id(param): name for name, param in model.named_parameters()}
    found = {
        names[id(param)]: (type(optimizer), group["lr"], group["weight_decay"])
        for optimizer in optimizers_of(model, settings)
        for group in optimizer.param_groups
        for param in group["params"]
    }
    assert set(found) == set(names.values())
    return found


@pytest.mark.parametrize(("name", "kind"), [("muon", Muon), ("adamw", torch.optim.AdamW)])
def test_matrices_gates_and_the_rest_are_moved_each_by_its_own_step_size(name, kind):
    """Only the matrices inside the layers decay; embeddings, head and norms are the rest."""
    found = grouped(name)
    for param, rule in found.items():
        if ".compressor." in param:
            assert rule == (torch.optim.AdamW, 0.02, 0.0)
        elif param.endswith("proj.weight"):
            assert rule == (kind, 0.03, 0.5)
        else:
            assert rule == (torch.optim.AdamW, 0.01, 0.0)
    assert sum(".compressor." in param for param in found) == 2
    assert sum(rule[0] is kind and rule[2] > 0 for rule in found.values()) == 7


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_step_sizes_rise_stay_and_fall_to_zero(name):
    """A linear rise, a plateau at 1, and a fall that would reach 0 one step after the last."""
    settings = Training(steps=100, warmup=9, decay=0.4, schedule=name)
    shares = [schedule(step, settings) for step in range(101)]
    assert shares[:9] == pytest.approx([(step + 1) / 10 for step in range(9)])
    assert shares[9:61] == [1.0] * 52
    assert all(a > b for a, b in pairwise(shares[60:]))
    assert shares[100] == 0
    assert shares[80] == pytest.approx(0.5)
    assert shares[70] == pytest.approx(0.75 if name == "linear" else 0.5 + 0.5**1.5)


def test_without_warmup_and_decay_the_step_size_stays():
    """Until the end."""
    settings = Training(steps=10, warmup=0, decay=0.0)
    assert [schedule(step, settings) for step in range(10)] == [1.0] * 10


def test_each_group_is_scaled_from_its_own_peak():
    """Setting a share twice does not multiply."""
    settings = Training(**SHAPE, task=made_task(), compression=FOURS, steps=100, warmup=0, **SIZES)
    optimizers = optimizers_of(new_model(settings), settings)
    for step in (90, 95):
        set_step_sizes(optimizers, step, settings)
    sizes = sorted(group["lr"] for optimizer in optimizers for group in optimizer.param_groups)
    assert sizes == pytest.approx([0.01 / 4, 0.02 / 4, 0.03 / 4])


@pytest.mark.parametrize("start", ["normal", "fan_in"])
def test_matrices_and_gates_start_as_asked(start):
    """0.02 as Qwen3 has it, or evenly up to one over the root of the inputs; all else is the same."""
    settings = Training(**SHAPE, task=made_task(), compression=FOURS, embedding_std=0.7, matrix_init=start)
    model, gates = new_model(settings), 0
    for name, param in model.named_parameters():
        if "layers" in name and param.ndim == 2:
            gates += ".compressor." in name
            spread, most = float(param.detach().std()), float(param.detach().abs().max())
            edge = param.shape[1] ** -0.5
            expected = 0.02 if start == "normal" else edge / 3**0.5
            assert spread == pytest.approx(expected, rel=0.25), name
            assert (most <= edge) or start == "normal"
    assert gates
    assert float(model.model.embed_tokens.weight.detach().std()) == pytest.approx(0.7, rel=0.1)
