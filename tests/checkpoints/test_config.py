"""Configs whose sizes no model can have are refused before anything is built."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from phasescope.checkpoints import zoo
from phasescope.checkpoints.config import load_config, text_part
from phasescope.cli import run
from phasescope.errors import PhasescopeError

GOOD = json.loads((zoo.folder("w8s8-1kv") / "config.json").read_text())
PLAIN = {"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    *(({**PLAIN, "num_hidden_layers": given}, "num_hidden_layers") for given in (0, -1, 10**7, "4")),
    ({**PLAIN, "vocab_size": 10**12}, "vocab_size"),
    ({**PLAIN, "head_dim": 0}, "head_dim"),
    ({**GOOD, "hidden_size": 0}, "hidden_size"),
    ({**GOOD, "head_dim": 10**9}, "head_dim"),
    ({**GOOD, "compression": {**GOOD["compression"], "tail": 10**9}}, "compression: tail"),
    ({**GOOD, "compression": {**GOOD["compression"], "rotary": 10**9}}, "compression: rotary"),
    ({**GOOD, "compression": {}}, "compression: compressor is missing"),
]
DAMAGED: list[Any] = [
    {**GOOD, "num_hidden_layers": 10**7},
    {**GOOD, "num_hidden_layers": 0},
    {**GOOD, "vocab_size": 10**12},
    {**GOOD, "hidden_size": -64},
    {**GOOD, "head_dim": 1e30},
    {**GOOD, "compression": {**GOOD["compression"], "stride": 10**9}},
    {**GOOD, "compression": {**GOOD["compression"], "width": 0}},
    {"text_config": {"num_hidden_layers": 10**6}},
    [],
    None,
]


@pytest.mark.parametrize("config", DAMAGED)
def test_a_config_out_of_range_is_one_line_in_little_time(
    tmp_path: Path, config: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured with the weights beside it; version 0.1 built ten million layers."""
    for name in ("model.safetensors", "card.json"):
        (tmp_path / name).write_bytes((zoo.folder("w8s8-1kv") / name).read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    started = time.process_time()
    out = tmp_path / "run"
    assert run(["measure", str(tmp_path), "--protocol", "prefix", "--contexts", "2", "--out", str(out)]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "bug" not in said
    assert time.process_time() - started < 20


@pytest.mark.parametrize(("config", "field"), IMPOSSIBLE)
def test_inspect_refuses_what_measure_refuses(
    tmp_path: Path, config: dict[str, Any], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same ranges in both, and the line names the field; version 0.1 inspected them all."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((zoo.folder("w8s8-1kv") / "model.safetensors").read_bytes())
    assert run(["inspect", str(tmp_path)]) == 2
    said = capsys.readouterr().err.strip()
    assert field in said
    assert "\n" not in said
    asked = ["--protocol", "prefix", "--contexts", "2"]
    assert run(["measure", str(tmp_path), *asked, "--out", str(tmp_path / "run")]) == 2
    assert "\n" not in capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    ("field", "claimed", "said"),
    [
        ("num_hidden_layers", 4000, "4,000 layers, and the weights beside it hold 2"),
        ("vocab_size", 2**24, "parameters"),
    ],
)
def test_a_config_that_claims_more_than_the_weights_hold_is_refused(
    tmp_path: Path, field: str, claimed: int, said: str
) -> None:
    """Before a library allocates what the config claims."""
    (tmp_path / "model.safetensors").write_bytes((zoo.folder("w8s8-1kv") / "model.safetensors").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**GOOD, field: claimed}))
    assert load_config(tmp_path)[field] == claimed
    with pytest.raises(PhasescopeError, match=said) as caught:
        load_config(tmp_path, weights=True)
    assert "\n" not in str(caught.value)


def test_the_configs_of_the_zoo_are_held_by_their_weights() -> None:
    """No honest checkpoint is refused."""
    for name in zoo.names():
        load_config(zoo.folder(name), weights=True)


def test_a_config_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    """Python's own reader would run out of stack."""
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(PhasescopeError, match=r"config\.json"):
        load_config(tmp_path)


def test_the_text_part_of_a_nested_config_counts() -> None:
    """And a plain one is its own text part."""
    assert text_part({"text_config": {"a": 1}}) == {"a": 1}
    assert text_part({"a": 1}) == {"a": 1}
