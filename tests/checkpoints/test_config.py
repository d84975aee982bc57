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


def test_a_config_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    """Python's own reader would run out of stack."""
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(PhasescopeError, match=r"config\.json"):
        load_config(tmp_path)


def test_the_text_part_of_a_nested_config_counts() -> None:
    """And a plain one is its own text part."""
    assert text_part({"text_config": {"a": 1}}) == {"a": 1}
    assert text_part({"a": 1}) == {"a": 1}
