"""`phasescope check` as a user meets it: the verdict first, exit codes for CI, one line for bad input."""

import json
import os
import subprocess
import sys

import pytest
import torch
from benchmarks.planted_faults import deepseek_v4

from tests.cli.test_cli import phasescope

SMALL = ["--cases", "4", "--sweep", "6", "--longest", "24", "--threads", "1"]


def test_a_clean_engine_exits_with_0() -> None:
    """The first line is the verdict; a row per feature follows."""
    said = phasescope("check", "w4s4-1kv", *SMALL, "--feature", "parts", "--feature", "crop")
    assert said.startswith("neither so far: all 3 invariances")
    for word in ("repeat", "parts", "crop", "holds", "strides 4, 16, 64", "seed 0"):
        assert word in said


def test_a_fault_exits_with_1_and_the_json_says_where(tmp_path) -> None:
    """A checkpoint whose cache cannot be cropped, though it says so."""
    torch.manual_seed(0)
    deepseek_v4(index_heads=32, topk=64).save_pretrained(tmp_path / "v4")
    told = phasescope_json("check", str(tmp_path / "v4"), *SMALL, "--feature", "crop", "--json")
    assert told["decision"] == "engine fault"
    assert told["strides"] == [4, 8, 16, 64]
    crop = told["rows"][1]
    assert (crop["feature"], crop["state"]) == ("crop", "fault")
    assert crop["smallest"]["prompt_ids"]


def phasescope_json(*arguments: str) -> dict:
    """Standard output of a run that ends with exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "phasescope", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no model 'nowhere'"),
        (["w4s4-1kv", "--stride", "1"], "stride 1: give whole numbers from 2"),
        (["w4s4-1kv", "--stride", "9999"], "stride 9999"),
        (["w4s4-1kv", "--feature", "part"], "unknown invariance 'part'; known: repeat"),
        (["w4s4-1kv", "--run", "nowhere"], "cannot read nowhere/run.json"),
        (["w4s4-1kv", "--device", "abacus"], "cannot use device 'abacus'"),
        (["w4s4-1kv", "--dtype", "fp7"], "dtype"),
        (["http://127.0.0.1:9"], "no OpenAI-compatible server"),
        (["gopher://x"], "no address of a server"),
        (["http://127.0.0.1:9", "--run", "nowhere"], "cannot read nowhere/run.json"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    """What was given, and what is allowed."""
    error = phasescope("check", *arguments, code=2)
    assert said in error
    assert len([line for line in error.splitlines() if line.startswith("phasescope:")]) == 1


def test_a_server_is_checked_without_torch() -> None:
    """The base install reaches the server's address before it fails."""
    error = phasescope(
        "check", "http://127.0.0.1:9", code=2, blocked=["torch", "transformers", "safetensors"]
    )
    assert "no OpenAI-compatible server" in error
