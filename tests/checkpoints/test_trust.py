"""Nothing that a checkpoint brings or names is unpickled, fetched or run, whichever way it is loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from phasescope import UsageError
from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.backends.transformers.load import load_model
from phasescope.checkpoints.config import load_config
from phasescope.training.start import read_start
from tests.builders.tiny_models import VOCABULARY, qwen3
from tests.cli.in_process import phasescope

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain Qwen3 of two layers."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    qwen3().save_pretrained(path)
    return path


def _index(folder: Path, file: str) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"model.norm.weight": file}}))


def pickled(folder: Path) -> None:
    """The index leads to a pickle; some safetensors lie beside it."""
    torch.save({"model.norm.weight": torch.ones(1)}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "x.safetensors")
    _index(folder, "pytorch_model.bin")


def outside(folder: Path) -> None:
    """The index leads out of the folder."""
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    shutil.copy(folder.parent / "outside.safetensors", folder / "x.safetensors")
    _index(folder, "../outside.safetensors")


def adapter(folder: Path) -> None:
    """An adapter's own weights, and its base, would be loaded."""
    (folder / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "owner/model"}'
    )
    torch.save({}, folder / "adapter_model.bin")


def named(**fields: Any) -> Callable[[Path], None]:
    """Fields of the config."""

    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | fields))

    return change


KERNEL = "kernels-community/flash-attn3"
WAYS = {
    "a pickle behind an index": (pickled, "may be a pickle"),
    "a file outside": (outside, "same folder"),
    "an adapter": (adapter, "merge it"),
    "attention of a hub": (named(_attn_implementation=KERNEL), "names code to fetch"),
    "attention, as others spell it": (named(attn_implementation=f"{KERNEL}@main:fn"), "names code to fetch"),
    "attention by part": (named(_attn_implementation={"text_config": KERNEL}), "names code to fetch"),
    "attention of a part": (named(text_config={"_attn_implementation": KERNEL}), "names code to fetch"),
    "a paged form": (named(_attn_implementation=f"paged|{KERNEL}"), "names code to fetch"),
    "experts": (named(_experts_implementation="owner/experts"), "names code to fetch"),
    "kernels": (named(use_kernels=True), "names code to fetch"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "load", [load_model, read_start, lambda f: TransformersBackend.load(f, vocabulary=VOCABULARY)]
)
def test_what_may_not_be_read_or_run_is_refused(sound, tmp_path, way, load):
    """By every loader, in one line."""
    folder = shutil.copytree(sound, tmp_path / "model")
    change, words = WAYS[way]
    change(folder)
    with pytest.raises(UsageError, match=words) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", ["a pickle behind an index", "an adapter", "attention of a hub"])
@pytest.mark.parametrize("command", [("measure", "--out", "out"), ("check",)], ids=["measure", "check"])
def test_the_command_line_refuses_it_too(sound, tmp_path, way, command):
    """Exit code 2, before anything is written."""
    folder = shutil.copytree(sound, tmp_path / "model")
    change, words = WAYS[way]
    change(folder)
    said = phasescope(command[0], folder, *command[1:], code=2, cwd=tmp_path)
    assert words in " ".join(said.split())
    assert not (tmp_path / "out" / "observations.jsonl").exists()


def test_code_that_is_trusted_may_be_named_and_pickles_still_not(sound, tmp_path):
    """The flag is for code; weights are safetensors in the folder whatever it says."""
    folder = shutil.copytree(sound, tmp_path / "model")
    named(_attn_implementation=KERNEL)(folder)
    assert load_config(folder, weights=True, trusted=True)["_attn_implementation"] == KERNEL
    pickled(folder)
    with pytest.raises(UsageError, match="may be a pickle"):
        load_config(folder, weights=True, trusted=True)


@pytest.mark.parametrize("plain", ["eager", "sdpa", None])
def test_an_implementation_of_the_library_is_no_foreign_code(sound, tmp_path, plain):
    """Configs that `save_pretrained` wrote name one now and then."""
    folder = shutil.copytree(sound, tmp_path / "model")
    named(_attn_implementation=plain)(folder)
    load_model(folder)
