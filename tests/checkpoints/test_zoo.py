"""The shipped checkpoints are what their cards say."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

import phasescope.models  # noqa: F401  (registers the models with transformers)
from phasescope import UnknownNameError
from phasescope.checkpoints import zoo


def test_the_zoo_holds_a_control_and_the_grids_of_the_family():
    """Full attention and every published grid, and W8/S8 with four KV heads."""
    plans = {name: zoo.card(name).compression for name in zoo.names()}
    grids = {(p.width, p.stride) if p else None for p in plans.values()}
    assert grids == {None, (4, 4), (8, 4), (8, 6), (8, 8), (12, 12)}
    assert plans[zoo.names()[0]] is None
    assert {zoo.card(name).kv_heads for name in zoo.names()} >= {1, 4}


@pytest.mark.parametrize("name", zoo.names())
def test_a_checkpoint_loads_and_is_small_and_its_card_fits_it(name):
    """Card and configuration agree; weights are safetensors of at most 2 MB and nothing else is shipped."""
    folder, card = zoo.folder(name), zoo.card(name)
    files = {path.name for path in folder.iterdir()}
    assert files == {"config.json", "generation_config.json", "model.safetensors", "card.json"}
    assert (folder / "model.safetensors").stat().st_size < 2e6
    model = AutoModelForCausalLM.from_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    assert card.compression == model.config.plan
    assert config["num_key_value_heads"] == card.kv_heads
    assert card.command.startswith(("phasescope train ", "python -m research.small_grid "))
    for measured in card.measured.values():
        assert len(measured.phases) == measured.folded_by
    assert torch.isfinite(model(input_ids=torch.arange(30)[None]).logits).all()


def test_the_demo_asks_models_of_one_vocabulary():
    """The mixture's rows have ids of text before those of records, and are left out of it."""
    shown = zoo.names(demo=True)
    assert len({zoo.card(name).vocabulary.model_dump_json() for name in shown}) == 1
    assert not any(name.startswith("mix-") for name in shown)


def test_an_unknown_name_lists_the_known_ones():
    """The error is of help."""
    with pytest.raises(UnknownNameError, match=zoo.names()[0]):
        zoo.folder("w9s9")
