"""No damaged file ends in a traceback, in "this is a bug", without end, or in all the memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.damage import damaged, steps
from tests.fuzz.kinds import KINDS, Kind
from tests.fuzz.running import fault

CASES = int(os.environ.get("PHASESCOPE_FUZZ_CASES", "90"))
"""Of each kind, in the slow lane."""


def fuzz(kind: Kind, whole: Path, tmp_path: Path, cases: int, count: Callable[[str, object], None]) -> None:
    """Damage a file in so many ways, and let a command read each."""
    top = kind.file.split("/")[0]
    there = tmp_path / "there"
    done = 0

    @settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps, st.sampled_from(kind.commands))
    def one(steps, command):
        nonlocal done
        done += 1
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir()
        for other in whole.iterdir():
            if other.name != top:
                (there / other.name).symlink_to(other)
        (shutil.copytree if (whole / top).is_dir() else shutil.copy)(whole / top, there / top)
        (there / kind.file).write_bytes(damaged((whole / kind.file).read_bytes(), kind.form, steps))
        wrong = fault(command.split(), there)
        assert wrong is None, f"{kind.file} after {steps}; {command}: {wrong}"

    try:
        one()
    finally:
        count("fuzzed", done)


@pytest.mark.parametrize("name", KINDS)
def test_a_few_damaged_files_of_each_kind_are_refused_or_read(name, whole, tmp_path, record_property):
    """Exit code 0 or 2, one line, in little time and memory."""
    fuzz(KINDS[name], whole, tmp_path, 4, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_of_each_kind_are_refused_or_read(name, whole, tmp_path, record_property):
    """The same at length."""
    fuzz(KINDS[name], whole, tmp_path, CASES, record_property)
