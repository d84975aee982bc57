"""`phasescope check` as a user meets it: the verdict first, exit codes for CI, one line for bad input.

In this process, as each of its own would import torch.
"""

import json
from collections.abc import Callable

import pytest
import torch
from benchmarks.planted_faults import deepseek_v4

from phasescope.cli import run
from tests.cli.base_install import BaseInstall

SMALL = ["--cases", "4", "--sweep", "6", "--longest", "24", "--threads", "1"]
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run `phasescope check`: exit code, standard output and standard error."""
    monkeypatch.setattr("phasescope.backends.openai.client.OFFERS", 1)

    def ask(*arguments: str) -> tuple[int, str, str]:
        return (run(["check", *arguments]), *capsys.readouterr())

    return ask


def test_a_clean_engine_exits_with_0(ask: Ask) -> None:
    """The first line is the verdict; a row per feature follows."""
    code, said, _ = ask("w4s4-1kv", *SMALL, "--feature", "parts", "--feature", "crop")
    assert code == 0
    assert said.startswith("neither so far: all 3 invariances")
    for word in ("repeat", "parts", "crop", "holds", "strides 4, 16, 64", "seed 0"):
        assert word in said


def test_a_fault_exits_with_1_and_the_json_says_where(ask: Ask, tmp_path) -> None:
    """A checkpoint whose cache cannot be cropped, though it says so."""
    torch.manual_seed(0)
    deepseek_v4(index_heads=32, topk=64).save_pretrained(tmp_path / "v4")
    code, said, _ = ask(str(tmp_path / "v4"), *SMALL, "--feature", "crop", "--json")
    told = json.loads(said)
    assert code == 1
    assert told["decision"] == "engine fault"
    assert told["strides"] == [4, 8, 16, 64]
    crop = told["rows"][1]
    assert (crop["feature"], crop["state"]) == ("crop", "fault")
    assert crop["smallest"]["prompt_ids"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no model 'nowhere'"),
        (["w4s4-1kv", "--stride", "1"], "stride 1: give whole numbers from 2"),
        (["w4s4-1kv", "--stride", "9999"], "stride 9999"),
        (["w4s4-1kv", "--feature", "part"], "unknown invariance 'part'; known: repeat"),
        (["w4s4-1kv", "--run", "nowhere"], "nowhere holds no run.json"),
        (["w4s4-1kv", "--condition", "x"], "--condition names a condition of a run; give the run with --run"),
        (["w4s4-1kv", "--device", "abacus"], "cannot use device 'abacus'"),
        (["w4s4-1kv", "--dtype", "fp7"], "unknown dtype 'fp7'; give auto"),
        (["w4s4-1kv", "--served", "x"], "--served is for a server"),
        (["w4s4-1kv", "--new", "600"], "new is 600; give at most 64"),
        (["http://127.0.0.1:9"], "does not answer: the connection failed"),
        (["http://127.0.0.1:9", "--dtype", "fp7"], "unknown dtype 'fp7'; known: float32"),
        (["http://127.0.0.1:9", "--tokenizer", "nowhere"], "no tokenizer at nowhere"),
        (["http://127.0.0.1:9", "--run", "nowhere"], "nowhere holds no run.json"),
        (["gopher://x"], "no address of a server"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(ask: Ask, arguments: list[str], said: str) -> None:
    """What was given, and what is allowed."""
    code, _, error = ask(*arguments)
    assert code == 2, error
    assert said in error
    assert len([line for line in error.splitlines() if "phasescope:" in line]) == 1


def test_a_server_is_checked_without_torch(base_install: BaseInstall) -> None:
    """The base install reaches the server's address before it fails."""
    assert "does not answer: the connection failed" in base_install("check", "http://127.0.0.1:9", code=2)
