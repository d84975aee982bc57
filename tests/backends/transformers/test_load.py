"""Where a checkpoint is put and how it reads, by name; what cannot be had is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from phasescope import PhasescopeError, UsageError
from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.backends.transformers.load import load_model
from tests.builders.tiny_models import VOCABULARY, qwen3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain Qwen3 of two layers, saved in float32."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    qwen3().save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("auto", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("float16", torch.float16),
        ("float64", torch.float64),
    ],
)
def test_the_dtype_is_what_was_named(folder: Path, dtype: str, expected: torch.dtype) -> None:
    """`auto` keeps the checkpoint's own."""
    model = load_model(folder, dtype=dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {expected}


@pytest.mark.parametrize("device_map", [None, "auto", "balanced", "sequential"])
def test_a_device_map_keeps_the_answers(folder: Path, device_map: str | None) -> None:
    """On a machine without GPU every map ends on the CPU, with the same weights."""
    model = load_model(folder, device_map=device_map)
    expected = load_file(folder / "model.safetensors")
    state = model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_is_recorded_and_gives_the_same_logits(folder: Path, attention: str) -> None:
    """The description names it, because the last digits depend on it."""
    backend = TransformersBackend.load(folder, vocabulary=VOCABULARY, attention=attention)
    assert backend.describe()["attention"] == attention
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        given, plain = (model(input_ids=ids).logits for model in (backend.model, load_model(folder)))
    torch.testing.assert_close(given, plain, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dtype": "int8"}, "unknown dtype 'int8'; known: auto, bfloat16"),
        ({"device_map": "spread"}, "unknown device_map 'spread'; known: auto, balanced"),
        ({"attention": "fast"}, "unknown attention 'fast'; known: eager, flash_attention_2"),
        ({"attention": "flash_attention_2"}, "cannot load"),
        ({"device": "cuda:99"}, "cannot use device 'cuda:99'"),
    ],
)
def test_what_cannot_be_had_is_one_line(folder: Path, settings: dict[str, str], said: str) -> None:
    """What was given, what is allowed."""
    with pytest.raises(PhasescopeError, match=said) as caught:
        load_model(folder, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("settings", [{"max_tokens": 0}, {"prefill_chunk": 0}])
def test_forwards_of_nothing_are_refused(folder: Path, settings: dict[str, int]) -> None:
    """At least one token."""
    with pytest.raises(UsageError, match="give at least 1"):
        TransformersBackend.load(folder, vocabulary=VOCABULARY, **settings)


def test_a_broken_safetensors_file_is_one_line(folder: Path, tmp_path: Path) -> None:
    """Truncated in the header, or in the tensors."""
    for size in (4, 1000):
        broken = tmp_path / str(size)
        broken.mkdir()
        (broken / "config.json").write_text((folder / "config.json").read_text())
        (broken / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:size])
        with pytest.raises(UsageError, match="cut short") as caught:
            load_model(broken)
        assert "\n" not in str(caught.value)


def test_the_text_of_a_continuation_needs_a_tokenizer(folder: Path) -> None:
    """Without a tokenizer.json in the folder a reply has ids alone."""
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3"
    assert TransformersBackend.load(folder, vocabulary=VOCABULARY)._tokenizer is None
