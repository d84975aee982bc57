"""One process at a time in a folder, whichever way it ends."""

import signal
import subprocess
import sys

import pytest

from phasescope import UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.files import alone
from phasescope.protocols import PrefixPadding
from phasescope.running.runner import Condition, run

HOLDER = """
import sys, time
from pathlib import Path
from phasescope.files import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_folder_is_held_until_its_process_is_killed(tmp_path):
    """Another process is told so in one line; no lock outlives its process."""
    folder = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        for _ in range(2):
            with pytest.raises(UsageError, match="run is being written by another process"), alone(folder):
                pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with alone(folder):
        pass
    with alone(folder):  # and after one that ended well
        pass


def test_a_measurement_leaves_a_folder_alone_that_another_writes(tmp_path):
    """Two processes would log every trial twice."""
    conditions = [
        Condition(
            "a",
            Planted(grid=WindowGrid(4, 4), curve=(0.9, 0.6, 0.3, 0.75)),
            PrefixPadding(pairs=3, contexts=2, residues=4),
        )
    ]
    with alone(tmp_path), pytest.raises(UsageError, match="being written by another process"):
        run(conditions, tmp_path, seed=0)
    assert not (tmp_path / "run.json").exists()
    run(conditions, tmp_path, seed=0)
    assert (tmp_path / "observations.jsonl").exists()
