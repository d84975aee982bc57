"""`phasescope sweep` as a user meets it."""

from __future__ import annotations

import functools
import json
import re

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from phasescope.backends.transformers.backend import folder_vocabulary
from phasescope.checkpoints import zoo
from phasescope.logs import read_log
from tests.builders.text_tokenizer import CHATML, save
from tests.cli import in_process

PROMPT = "the scale is kept in FP32.\n<pad>values of a block are stored in FP\n"
WAY = ["--lengths", "0:8", "--place", "mark", "--expected", "8", "--rival", "32", "--family", "line"]
SIZES = ["--draws", "99", "--threads", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that was never trained, with its tokenizer and chat template, and a prompt."""
    folder = tmp_path_factory.mktemp("sweep")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        eos_token_id=1,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder / "model")
    save(folder / "model", template=CHATML)
    (folder / "p.txt").write_text(PROMPT)
    (folder / "own.py").write_text("def short(text):\n    return len(text) < 5\n")
    return folder


@pytest.fixture
def phasescope(folder):
    """Run a command in the folder and return what it printed."""
    return functools.partial(in_process.phasescope, cwd=folder)


def test_a_sweep_prints_a_strip_and_a_verdict_and_resumes_to_the_same_bytes(phasescope, folder):
    """Cut in the middle, the same command ends with the same files; other settings are refused."""
    command = ["sweep", "p.txt", "--control", "model", *WAY, "--family", "comment", *SIZES, "--out", "run"]
    said = phasescope(*command)
    assert "p.txt · line" in said
    assert re.search(r"P\(8\) +0\.\d{3}", said)
    assert "Control model is" in said
    names = ("observations.jsonl", "findings.json", "report.html", "run.json")
    whole = {name: (folder / "run" / name).read_bytes() for name in names}
    log = folder / "run" / "observations.jsonl"
    log.write_bytes(log.read_bytes()[:-200])
    phasescope(*command)
    assert {name: (folder / "run" / name).read_bytes() for name in names} == whole
    assert "conditions[0].protocol" in phasescope(*command, "--lengths", "0:9", code=2)
    (folder / "p2.txt").write_text(PROMPT.replace("values", "scales"))
    assert "prompts" in phasescope(command[0], "p2.txt", *command[2:], code=2)


def test_a_text_is_generated_and_scored_by_the_users_own_function(phasescope, folder):
    """In the chat template, with at most as many tokens as asked."""
    words = ["--chat", "--scorer", "own.py:short", "--tokens", "6", "--lengths", "0:6", "--place", "mark"]
    said = phasescope(
        "sweep", "p.txt", "--model", "model", *words, "--family", "line", *SIZES, "--out", "scored"
    )
    assert "score" in said
    for line in read_log(folder / "scored" / "observations.jsonl"):
        assert line.score == float(len(line.text) < 5)
        assert line.logprob is None


def test_four_lengths_leave_no_smooth_curve_beyond_the_trend_and_are_reported(phasescope):
    """No column to fit is no mistake of the user's."""
    words = ["--lengths", "0:4", "--place", "mark", "--expected", "8", "--family", "line", *SIZES]
    assert "report: short/report.html" in phasescope(
        "sweep", "p.txt", "--control", "model", *words, "--out", "short"
    )


def test_the_page_is_whole_and_escapes_what_models_and_users_say(phasescope, folder):
    """Nothing is fetched, nothing is run."""
    record = {
        "name": "<script>alert(1)</script>",
        "prompt": "<pad>a </script><b> is stored in FP",
        "expected": "<i>",
        "rival": "&amp;",
    }
    (folder / "evil.jsonl").write_text(json.dumps(record) + "\n")
    phasescope(
        "sweep", "evil.jsonl", "--model", "model", "--lengths", "1:7", "--place", "mark", "--family", "line",
        *SIZES, "--out", "evil",
    )  # fmt: skip
    page = (folder / "evil" / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert page.count("<svg") == 1


def test_a_compressed_model_flips_and_its_control_does_not(phasescope, folder):
    """The positive control: a zoo model of stride 8 under pads around its records, given as token ids."""
    ids = folder_vocabulary(zoo.folder("w8s8-1kv"))
    records = [token for pair in zip(ids.keys[:16], ids.values[:16], strict=True) for token in pair]
    record = {
        "prompt_ids": [*records, *ids.fillers[:12], ids.keys[8]],
        "expected_ids": [ids.values[8]],
        "rival_ids": [[value] for value in (*ids.values[:8], *ids.values[9:16])],
        "at": 0,
        "until": 32,
        "source": 16,
    }
    (folder / "ids.jsonl").write_text(json.dumps(record) + "\n")
    said = phasescope(
        "sweep", "ids.jsonl", "--model", "w8s8-1kv", "--control", "full-1kv", "--place", "around",
        "--family", f"ids:{ids.fillers[0]}", "--family", f"ids:{ids.fillers[1]}",
        "--draws", "500", "--threads", "1", "--out", "ids",
    )  # fmt: skip
    assert "Control full-1kv is flat" in said
    assert "w8s8-1kv is phase-sensitive: the margin over the rival repeats every 8 pad tokens" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["p.txt", "--out", "x", *WAY], "--model"),
        (["p.txt", "--model", "model", *WAY], "--out"),
        (["--model", "model", "--out", "x", *WAY], "prompts"),
        (["none.txt", "--model", "model", "--out", "x", *WAY], "cannot read none.txt"),
        (["model", "--model", "model", "--out", "x", *WAY], "cannot read model"),
        (["p.txt", "--model", "no-such", "--out", "x", *WAY], "no model 'no-such'"),
        (["p.txt", "--model", "w8s8-1kv", "--out", "x", *WAY], "no tokenizer at"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--lengths", "8"], "two or more"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--lengths", "a:b"], "give FIRST:END"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--lengths", "8:0"], "lengths are none"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--family", "stars"], "unknown padding family"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--place", "top"], "give front, mark or around"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--mark", "<here>"], "exactly once"),
        (["p.txt", "--model", "model", "--out", "x", "--lengths", "0:4"], "choose placement mark"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--rival", "8"], "same token"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--scorer", "regex:["], "no regular expression"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--scorer", "own.py:none"], "no function 'none'"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--system", "s"], "ask for chat"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--tokenizer", "p.txt"], "no tokenizer.json that"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--tokens", "0"], "--tokens"),
        (["p.txt", "--model", "model", "--out", "x", *WAY, "--draws", "1"], "--draws"),
        (["p.txt", "--model", "model", "--model", "model", "--out", "x", *WAY], "a name of its own"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(phasescope, folder, words, said):
    """Nothing is asked and nothing written."""
    error = phasescope("sweep", *words, code=2)
    assert said in error
    assert "Traceback" not in error
    assert not (folder / "x" / "observations.jsonl").exists()


def test_measure_sends_sweepers_to_sweep(phasescope):
    """The protocol's name alone says nothing about prompts."""
    error = phasescope("measure", "full-1kv", "--protocol", "sweep", "--out", "x", code=2)
    assert "use phasescope sweep" in error
