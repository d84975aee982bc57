"""Training state on disk: everything by name, whole or not at all."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from phasescope import UsageError
from phasescope.files import dump_json, write_atomic
from phasescope.training import checkpoint
from phasescope.training.checkpoint import load_state, save_state
from phasescope.training.muon import Muon
from phasescope.training.parallel import Processes
from phasescope.training.settings import Progress

ALONE = Processes()
PROGRESS = Progress(step=2, pairs=4, seconds=0.5, loss=1.25, phase_losses=(0.5, 2.0))


def made(seed, width=3):
    """A model, with its matrix under Muon and the rest under AdamW, after two steps."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(width, 4), torch.nn.LayerNorm(4))
    optimizers = [Muon([model[0].weight]), torch.optim.AdamW([model[0].bias, *model[1].parameters()])]
    for _ in range(2):
        step(model, optimizers)
    return model, optimizers


def step(model, optimizers):
    model(torch.ones(2, model[0].in_features)).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def test_a_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    """The third step after loading gives the bits of the third step without, from any other beginning."""
    model, optimizers = made(0)
    save_state(tmp_path / "state", model, optimizers, PROGRESS, ALONE)
    other, others = made(1)
    assert load_state(tmp_path / "state", other, others, ALONE) == PROGRESS
    step(model, optimizers)
    step(other, others)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_names_say_what_everything_belongs_to(tmp_path):
    """Weights, momentum and moments by the parameter's name, whatever group it is in."""
    save_state(tmp_path / "state", *made(0), PROGRESS, ALONE)
    names = load_file(tmp_path / "state" / "state.safetensors").keys()
    assert {"model.0.weight", "optimizer.0.weight.momentum", "optimizer.1.bias.exp_avg_sq"} <= names
    assert len(names) == 4 + 1 + 3 * 3


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    """The old state is found beside its place."""
    save_state(tmp_path / "state", *made(0), PROGRESS, ALONE)
    (tmp_path / "state").rename(tmp_path / ".state.old")
    assert load_state(tmp_path / "state", *made(0), ALONE) == PROGRESS
    assert load_state(tmp_path / "nothing", *made(0), ALONE) is None


def test_a_state_of_another_model_is_refused(tmp_path):
    """Other shapes, and what no parameter of this model is called."""
    save_state(tmp_path / "state", *made(0), PROGRESS, ALONE)
    with pytest.raises(UsageError, match="belongs to another model or an older version; use another --out"):
        load_state(tmp_path / "state", *made(0, width=5), ALONE)
    file = tmp_path / "state" / "state.safetensors"
    save_file({**load_file(file), "optimizer.0.0.momentum": torch.zeros(4, 3)}, file)
    state = tmp_path / "state" / "state.json"
    write_atomic(state, dump_json({**PROGRESS.model_dump(), "digest": checkpoint._digest(file, PROGRESS)}))
    with pytest.raises(UsageError, match="belongs to another model"):
        load_state(tmp_path / "state", *made(0), ALONE)


def test_a_state_of_version_0_1_is_read_and_written_with_the_same_bytes(tmp_path):
    """Its facts were a plain dictionary, digested as sorted JSON before the tensors."""
    save_state(tmp_path / "state", *made(0), PROGRESS, ALONE)
    facts = {
        "step": 2,
        "pairs": 4,
        "since": 0,
        "tokens": 0,
        "seconds": 0.5,
        "loss": 1.25,
        "accuracy": None,
        "text_loss": None,
        "imbalance": None,
        "phase_losses": [0.5, 2.0],
    }
    content = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    tensors = (tmp_path / "state" / "state.safetensors").read_bytes()
    facts["digest"] = hashlib.sha256(content.encode() + tensors).hexdigest()
    old = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    assert (tmp_path / "state" / "state.json").read_text() == old
