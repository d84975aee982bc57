"""`phasescope inspect` as a user meets it."""

import json
import sys
from pathlib import Path

import pytest

from phasescope.checkpoints import zoo
from phasescope.cli import inspect as view
from tests.cli.base_install import BaseInstall
from tests.cli.in_process import phasescope

V4 = {
    "model_type": "deepseek_v4",
    "num_hidden_layers": 4,
    "compress_ratios": [0, 4, 128, 4],
    "sliding_window": 64,
}


def say(*arguments: str, code: int = 0, cwd: Path | None = None) -> str:
    """What the command says; on standard error where it fails."""
    return phasescope("inspect", *arguments, code=code, cwd=cwd)


def write(folder: Path, **config: object) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_verdict_comes_first_and_needs_no_torch(tmp_path: Path, base_install: BaseInstall) -> None:
    """Grid, control and unknown, each in its first line."""
    said = base_install("inspect", str(write(tmp_path, **V4)))
    assert said.splitlines()[0] == (
        "phase-sensitive by construction beyond 64 tokens: strides 4 and 128; joint period 128"
    )
    assert "unread tokens in layers 2: up to 63 tokens are read nowhere" in said
    control = say(str(write(tmp_path, model_type="qwen3")))
    assert control.startswith("no token grid: a negative control (dense attention)")
    unknown = say(str(write(tmp_path, model_type="brandnew", kv_chunk=7)))
    assert unknown.startswith("unknown")
    assert "kv_chunk = 7" in unknown


def test_the_zoo_is_inspected_by_name_with_its_slot_weights() -> None:
    """Every model; what a gate weighs most is said of its weights and not of recall."""
    for name in zoo.names():
        said = say(name)
        assert said.startswith("phase-sensitive" if zoo.card(name).compression else "no token grid")
    assert "tokens of phase 7 (×1.98), 6 (×1.33) weigh most" in say("w8s8-4kv")
    said = say("w8s8-1kv")  # whose worst phases are 6 and 7
    assert "slot weights of 2 biases on W8/S8 (entries): tokens of phase 6 (×1.12)" in said
    assert "not what the model recalls" in said
    assert "favours" not in said


def test_json_holds_everything_and_nothing_else(tmp_path: Path) -> None:
    """One object on standard output."""
    found = json.loads(say(str(write(tmp_path, **V4)), "--json"))
    assert (found["strides"], found["period"], found["reach"]) == ([4, 128], 128, 64)
    assert [len(layer["folds"]) for layer in found["layers"]] == [0, 1, 1, 1]
    assert "no slot weights" in found["prior_lacks"]
    zoo_found = json.loads(say("w8s4-1kv", "--json"))
    assert sum(zoo_found["prior"][0]["phases"]) == pytest.approx(1)


def test_techniques_and_families_are_listed() -> None:
    """An engine's grid by name, and the table of the documentation."""
    assert "stride 20 (eviction only)" in say("--technique", "chunkkv")
    assert "| DeepSeek-V4 |" in say("--families")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of the three"),
        (["{folder}", "--families"], "one of the three"),
        (["nowhere"], "no model 'nowhere'"),
        (["w8s8-1kw"], "did you mean 'w8s8-1kv'?"),
        (["owner/name"], "without huggingface_hub"),
        (["{folder}/empty"], "holds no config.json"),
        (["{folder}/list.json"], "not an object of fields"),
        (["{folder}/cut.json"], "is not JSON"),
        (["{folder}/deep.json"], "is not JSON"),
        (["{folder}/bare.json"], "no model_type"),
        (["{folder}/zero.json"], "moba_chunk_size is 0"),
        (["{folder}/forged"], "cut short"),
        (["{folder}/pickled"], "no safetensors"),
        (["--technique", "kivvi"], "did you mean 'kivi'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch, arguments: list[str], said: str
) -> None:
    """What was given, what is allowed."""
    for name in ("empty", "forged", "pickled"):
        (tmp_path / name).mkdir()
    files = {
        "list": "[1]",
        "cut": '{"a"',
        "deep": "[" * 50_000,
        "bare": "{}",
        "zero": '{"model_type":"moba","moba_chunk_size":0}',
    }
    for name, text in files.items():
        (tmp_path / f"{name}.json").write_text(text)
    write(tmp_path / "forged", **V4)
    (tmp_path / "forged" / "model.safetensors").write_bytes((2**50).to_bytes(8, "little") + b"{}")
    write(tmp_path / "pickled", **V4)
    (tmp_path / "pickled" / "model.safetensors").write_bytes(b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    given = (word.format(folder=tmp_path) for word in arguments)
    error = say(*given, code=2, cwd=tmp_path)
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "pwned").exists()


def test_what_a_config_says_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """Escape sequences and markup of a model type or a field are shown, not obeyed."""
    evil = {"model_type": "\x1b[31m[bold]x", "chunk\x07": "\x1b]0;title\x07[link=http://x]"}
    said = say(str(write(tmp_path, **evil)))
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "[bold]x" in said


def test_the_documentation_has_the_table_that_the_code_gives() -> None:
    """docs/targets.md; renew it with: phasescope inspect --families."""
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    start, end = page.index("<!-- families -->"), page.index("<!-- end of families -->")
    assert page[start:end].split("\n", 1)[1].strip() == "\n".join(view.family_rows())
