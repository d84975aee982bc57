"""`phasescope explain` as a user meets it."""

import json
import os
import subprocess
import sys

import pytest

MODEL = "w8s8-1kv"


def phasescope(*arguments, cwd, code=0):
    """Run the command line; what it prints, or its last line of complaint."""
    done = subprocess.run(
        [sys.executable, "-m", "phasescope", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder that holds a measured run."""
    folder = tmp_path_factory.mktemp("cli")
    phasescope(
        *("measure", MODEL, "full-1kv", "--protocol", "in_sequence", "--out", "run"),
        *("--contexts", "3", "--threads", "1"),
        cwd=folder,
    )
    return folder


def test_explain_prints_cost_and_sentences_and_writes_a_page(measured):
    """Cost first, then one sentence per section, then where the page is."""
    said = phasescope("explain", "run", "--blocks", "32", "--no-rolls", cwd=measured).splitlines()
    assert said[0].startswith(f"{MODEL}: 2 units and 0 rolls over 32 blocks at 24 layouts in 2 contexts")
    assert any("more are lost at the phases that its gate prefers" in line for line in said)
    assert said[-1].endswith("explain/w8s8-1kv/explain.html")
    folder = measured / "run" / "explain" / MODEL
    assert json.loads((folder / "explain.json").read_text())["blocks"] == 32
    assert (folder / "explain.html").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        (["run", "--blocks", "0"], "--blocks"),
        (["run", "--blocks", "999"], "whole blocks"),
        (["run", "--mode", "median"], "--mode"),
        (["run", "--branch", "leaf"], "--branch"),
        (["run", "--threads", "0"], "--threads"),
        (["run", "--seed", "-1"], "--seed"),
        (["run", "--fold", "1"], "--fold"),
        (["run", "--draws", "1"], "--draws"),
        ([], "run"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(measured, arguments, said):
    """What was given, what is allowed."""
    error = phasescope("explain", *arguments, cwd=measured, code=2)
    assert error.startswith("phasescope: ")
    assert said.lower() in error.lower()
