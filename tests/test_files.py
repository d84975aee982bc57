"""Files stay whole, whoever writes them at once and whatever ends it; and are read with a bound."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from phasescope import BrokenRecordError, UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.files import alone, dump_json, read_json, write_atomic
from phasescope.protocols import PrefixPadding
from phasescope.running.runner import Condition, run

HOLDER = """
import sys, time
from pathlib import Path
from phasescope.files import alone, dump_json, read_json, write_atomic
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


def test_an_atomic_write_replaces_the_whole_file_and_leaves_no_part(tmp_path: Path) -> None:
    """Readers see the old or the new content, and nothing else lies beside it."""
    path = tmp_path / "deep" / "file.json"
    write_atomic(path, "old, and longer")
    write_atomic(path, b"new")
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_json_is_written_in_one_form_and_read_back(tmp_path: Path) -> None:
    """Key order doesn't matter, and numbers that are none are refused."""
    assert dump_json({"b": 1, "a": "ü"}) == dump_json({"a": "ü", "b": 1})
    write_atomic(tmp_path / "x", dump_json({"a": [1.5, None]}))
    assert read_json(tmp_path / "x") == {"a": [1.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json(float("nan"))


def test_a_broken_or_missing_json_file_is_one_line(tmp_path: Path) -> None:
    """The message names the file."""
    (tmp_path / "x").write_text("{")
    with pytest.raises(BrokenRecordError, match="x is not JSON"):
        read_json(tmp_path / "x")
    with pytest.raises(UsageError, match=r"cannot read .*y"):
        read_json(tmp_path / "y")


def test_many_may_write_one_file_at_once(tmp_path: Path) -> None:
    """One of them stands, whole, and nothing else is left."""
    path, failures = tmp_path / "file.json", []

    def write(number: int) -> None:
        try:
            for _ in range(50):
                write_atomic(path, str(number) * 1000)
        except UsageError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert path.read_text() in [str(number) * 1000 for number in range(4)]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space and give the same command again; what was finished is kept"),
        (errno.EDQUOT, "free some space"),
        (errno.EROFS, "give a path that can be read and written"),
    ],
)
def test_a_full_disk_is_one_line_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """The path is named, the old content stays, and no part of the new is left."""
    path = tmp_path / "file.json"
    write_atomic(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError, match=rf"cannot write .*file\.json: .*; {remedy}"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "recursion limit"),
        (b'{"a": ' + b"7" * 400 + b"}", "a number beyond"),
        (b'{"a": 1e400}', "a number beyond"),
        (b'"\\ud800"', "hex escape"),
        (b"NaN", "expected value"),
        (b"\xff", "expected value"),
    ],
)
def test_what_no_machine_can_hold_is_no_json(tmp_path: Path, content: bytes, message: str) -> None:
    """Nothing of the kind gets further than the file."""
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(BrokenRecordError, match=rf"x is not JSON: .*{message}"):
        read_json(tmp_path / "x")
