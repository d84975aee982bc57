"""`phasescope explain` as a user meets it."""

import json
import shutil

import pytest

from tests.cli.conftest import MODEL
from tests.cli.in_process import phasescope


def test_explain_prints_cost_and_sentences_and_writes_a_page(measured, tmp_path):
    """Cost first, then one sentence per section, then where the page is."""
    shutil.copytree(measured / "run", tmp_path / "run")
    said = phasescope("explain", "run", "--blocks", "32", "--no-rolls", cwd=tmp_path).splitlines()
    assert said[0].startswith(f"{MODEL}: 2 units and 0 rolls over 32 blocks at 24 layouts in 2 contexts")
    assert any("more are lost at the phases that its gate prefers" in line for line in said)
    assert said[-1].endswith("explain/w8s8-1kv/explain.html")
    folder = tmp_path / "run" / "explain" / MODEL
    assert json.loads((folder / "explain.json").read_text())["blocks"] == 32
    assert (folder / "explain.html").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        (["run", "--blocks", "0"], "blocks is 0; give at least 1"),
        (["run", "--blocks", "999"], "whole blocks"),
        (["run", "--mode", "median"], "--mode"),
        (["run", "--branch", "leaf"], "--branch"),
        (["run", "--threads", "0"], "--threads"),
        (["run", "--seed", "-1"], "seed is -1; give at least 0"),
        (["run", "--fold", "1"], "fold is 1; give at least 2"),
        (["run", "--draws", "1"], "draws is 1; give at least 20"),
        ([], "run"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(measured, arguments, said):
    """What was given, what is allowed."""
    error = phasescope("explain", *arguments, cwd=measured, code=2).splitlines()[-1]
    assert error.startswith("phasescope: ")
    assert said.lower() in error.lower()
