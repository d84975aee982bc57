"""Every command once in a process of its own, as a user starts it; the other tests run commands in theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phasescope.cli.commands import COMMANDS

SMALL = "--pairs 12 --contexts 2 --threads 1"
TINY = "--layers 1 --hidden-size 16 --heads 2 --kv-heads 1 --head-dim 8 --feed-forward 16 --steps 2 --max-pairs 4"
STARTS = {
    "demo": ("demo --sed 1", 2, "--sed"),
    "inspect": ("inspect w8s8-1kv --json", 0, '"strides": ['),
    "probe": ("probe http://127.0.0.1:9 --tries 1", 2, "does not answer"),
    "measure": (f"measure full-1kv --out own {SMALL}", 0, "wrote own"),
    "sweep": ("sweep none.txt --model full-1kv --out x", 2, "none.txt"),
    "check": ("check w4s4-1kv --cases 4 --sweep 4 --longest 24 --threads 1 --feature crop", 0, "crop"),
    "report": ("report run --draws 50", 0, "report.html"),
    "compare": ("compare run run --no-worse --draws 50", 0, "no change is seen"),
    "explain": ("explain nowhere", 2, "nowhere"),
    "audit": ("audit positions.jsonl --stride 4", 0, "visits 1 of 4 phases"),
    "mitigate": ("mitigate nowhere --out x", 2, "nowhere"),
    "pack": ("pack nowhere.txt --profile run", 2, "--tokenizer"),
    "warn": ("warn nowhere.txt --profile run", 2, "--mark"),
    "corpus": ("corpus text --text . --suffix txt --vocabulary 270 --held-out 0.2 --cut 100", 0, "text"),
    "train": (f"train --out trained --no-measure --rows 4 {TINY}", 0, "wrote trained"),
    "list": ("list", 0, "scalar_gate"),
}
"""Words, exit code, and what is said."""


@pytest.fixture(scope="module")
def folder(measured: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured run, a benchmark and a text."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "run").symlink_to(measured / "run")
    (folder / "positions.jsonl").write_text(
        "".join(json.dumps({"position": 8 * n}) + "\n" for n in range(40))
    )
    (folder / "lines.txt").write_text("".join(f"line {n} of {n * n} lines\n" for n in range(300)))
    return folder


def test_every_command_is_started_here() -> None:
    """A new command gets a line above."""
    assert STARTS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", STARTS)
def test_a_command_runs_in_a_process_of_its_own(folder: Path, name: str) -> None:
    """What it says, how it ends, and no traceback."""
    words, code, said = STARTS[name]
    done = subprocess.run(
        [sys.executable, "-m", "phasescope", *words.split()],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in (done.stderr if code else done.stdout)
    assert "Traceback" not in done.stderr
    assert "this is a bug" not in done.stderr
