"""Plans, workers and loading, as a user meets them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from phasescope.checkpoints import zoo
from tests.cli.in_process import phasescope
from tests.cli.test_cli import SMALL

MODEL = zoo.names()[-1]


def test_a_plan_is_what_the_run_then_spends(tmp_path: Path) -> None:
    """It says what could be missed, warns of few contexts, and writes nothing but the file that is asked for."""
    said = phasescope(
        "measure", MODEL, "--plan", "--json", "plan.json", *SMALL, "--price-in", "2", cwd=tmp_path
    )
    assert "nothing has been written" in said
    assert "warning: 3 contexts" in said
    assert "cost" in said
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
    plan = json.loads((tmp_path / "plan.json").read_text())
    phasescope("measure", MODEL, "--out", "run", *SMALL, cwd=tmp_path)
    timings = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    assert plan["conditions"][0]["read_tokens"] == sum(timing["tokens"] for timing in timings)
    again = phasescope("measure", MODEL, "--out", "run", "--workers", "2", *SMALL, cwd=tmp_path)
    assert "wrote run" in again  # another engine finds nothing left to do in the same folder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["measure", MODEL], "give --out"),
        (["measure", MODEL, "--out", "x", "--json", "p.json"], "give --plan too"),
        (["measure", MODEL, "--out", "x", "--workers", "0"], "--workers"),
        (["measure", MODEL, "--out", "x", "--engine", "rya"], "did you mean 'ray'"),
        (["measure", MODEL, "--out", "x", "--engine", "local", "--workers", "2"], "has one worker, not 2"),
        (
            ["measure", MODEL, "--out", "x", "--device-map", "auto", "--workers", "2"],
            "give 1 worker instead of 2",
        ),
        (["measure", MODEL, "--out", "x", "--prefill-chunk", "0"], "--prefill-chunk"),
        (["measure", MODEL, "--out", "x", "--max-tokens", "-5"], "--max-tokens"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    """Refused before a model is loaded or anything written."""
    error = phasescope(*arguments, code=2, cwd=tmp_path)
    assert said in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plan", "--accuracy", "1.2"], "accuracy 1.2"),
        (["--plan", "--effect", "0"], "effect 0.0"),
        (["--plan", "--price-in", "-1"], "give 0 or more"),
        (["--out", "x", "--dtype", "int4"], "unknown dtype 'int4'"),
        (["--out", "x", "--attention", "fast"], "unknown attention 'fast'"),
        (["--out", "x", "--attention", "flash_attention_2"], "cannot load"),
        (["--out", "x", "--device-map", "everywhere"], "unknown device_map 'everywhere'"),
        (["--out", "x", "--device", "cuda:7", "--workers", "2"], "cannot use device 'cuda:7'"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    """Also where a worker finds out."""
    error = phasescope("measure", MODEL, *arguments, *SMALL, code=2, cwd=tmp_path)
    assert said in error
    assert not list(tmp_path.iterdir())


def test_a_base_install_without_ray_says_which_extra_to_install(tmp_path: Path, monkeypatch) -> None:
    """In one line."""
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "phasescope.running.ray", raising=False)
    said = phasescope("measure", MODEL, "--out", "x", "--engine", "ray", code=2, cwd=tmp_path)
    assert "pip install '.[ray]'" in said
