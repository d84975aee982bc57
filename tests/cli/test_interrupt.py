"""Ctrl-C in real processes: one line, exit code 130, gone within a second, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
MEASURE = "measure full-1kv --out run --contexts 600 --threads 1"
TRAIN = "train --out trained --no-measure --steps 100000"


def started(words: str, cwd: Path, before: str = "") -> subprocess.Popen[str]:
    """A command in a process group of its own, as a terminal starts it."""
    arguments = ["phasescope", *words.split()]
    script = f"import sys; sys.argv = {arguments}\n{before}\nfrom phasescope.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted(process: subprocess.Popen[str]) -> tuple[float, str]:
    """Seconds until it was gone, and what it said."""
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=30)
    return time.monotonic() - begun, error


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Until the file is there."""
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


SIGNALLED_IN_TORCH = """
import builtins, os, signal, threading
own = builtins.__import__
def importing(name, *rest, **more):
    if name == 'torch':
        builtins.__import__ = own
        threading.Timer({after}, os.kill, (os.getpid(), signal.SIGINT)).start()
    return own(name, *rest, **more)
builtins.__import__ = importing
"""


@pytest.mark.parametrize("after", [0.0, 0.3, 1.0])
def test_while_torch_is_imported(tmp_path: Path, after: float) -> None:
    """An import may be in C, in Python, or half done."""
    process = started(MEASURE, tmp_path, SIGNALLED_IN_TORCH.format(after=after))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "phasescope: interrupted; the same command goes on from here\n"


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (MEASURE, "run/observations.jsonl"),
        (f"{MEASURE} --engine processes --workers 2", "run/observations.jsonl"),
        (TRAIN, "trained/training.json"),
    ],
)
def test_while_it_works(tmp_path: Path, words: str, there: str) -> None:
    """The whole group gets the signal, as from a terminal; no worker outlives the run."""
    process = started(words, tmp_path)
    wait_for(tmp_path / there, process)
    seconds, error = interrupted(process)
    assert process.returncode == 130
    assert error.splitlines() == ["phasescope: interrupted; the same command goes on from here"]
    assert seconds < 3  # 1 on a machine that does nothing else
    deadline = time.monotonic() + 5
    while _alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(process.pid)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_reader_that_goes_away_is_no_engine_fault(tmp_path: Path) -> None:
    """Exit code 1 is the verdict "engine fault" of `check`."""
    process = started("inspect --families", tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (141, "")
