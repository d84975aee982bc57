"""Profiles: from findings to a file and back."""

from pathlib import Path

import numpy as np
import pytest

from phasescope import BrokenRecordError, UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.mitigations import Profile, read_profile
from phasescope.protocols import PrefixPadding
from phasescope.reporting import build_report
from phasescope.running.runner import Condition, run

CURVE = [0.9, 0.9, 0.3, 0.88]


def report_on(folder: Path, **curves: list[float]) -> Path:
    conditions = [
        Condition(name, Planted(grid=WindowGrid(4, 4), curve=curve), PrefixPadding(pairs=12, contexts=16))
        for name, curve in curves.items()
    ]
    run(conditions, folder, seed=0)
    build_report([folder], draws=200)
    return folder


def test_a_report_writes_the_profile_that_was_planted(tmp_path: Path) -> None:
    """Its strong phases are those within five points of the best; the flat condition has none to prefer."""
    folder = report_on(tmp_path, flat=[0.7] * 4, weak=CURVE)
    found = read_profile(folder)
    assert (found.condition, found.sensitive, found.stride) == ("weak", True, 4)
    assert np.abs(np.array(found.accuracy) - CURVE).max() < 0.06
    assert set(found.strong(0.1)) == {0, 1, 3}
    assert read_profile(folder / "profile.json", "flat").strong() == (0, 1, 2, 3)


def test_two_sensitive_conditions_must_be_chosen_between(tmp_path: Path) -> None:
    """The message names them."""
    folder = report_on(tmp_path, one=CURVE, two=CURVE)
    with pytest.raises(UsageError, match="one, two"):
        read_profile(folder)
    with pytest.raises(UsageError, match="no condition 'three'"):
        read_profile(folder, "three")
    assert read_profile(folder, "two").condition == "two"


def test_files_that_hold_no_profile_are_refused(tmp_path: Path) -> None:
    """One line each."""
    with pytest.raises(UsageError, match="phasescope report RUN"):
        read_profile(tmp_path)
    for content in ("[]", "[[]]", '["x"]', '{"profiles": 3}', '{"profiles": [{"condition": "a"}]}'):
        (tmp_path / "profile.json").write_text(content)
        with pytest.raises(BrokenRecordError, match=r"profile\.json is damaged"):
            read_profile(tmp_path)


def test_a_curve_of_another_length_than_the_stride_is_refused() -> None:
    """A record that cannot be."""
    with pytest.raises(UsageError, match="a stride of 3"):
        Profile.checked(
            condition="a",
            stride=3,
            accuracy=(0.1,),
            low=(0,),
            high=(1,),
            sensitive=True,
            n_blocks=1,
            n_clusters=1,
        )
