"""Which arms a report has, by what they are folded, beside which control."""

from __future__ import annotations

import shutil

import pytest
from benchmarks.made_tokenizer import made_tokenizer, made_words

from phasescope.backends import Planted
from phasescope.errors import UsageError
from phasescope.grid import WindowGrid
from phasescope.protocols import Needle, PrefixPadding, QueryPadding
from phasescope.running.runner import Arm, run
from phasescope.statistics.conditions import common_stride, read_arms


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A control and strides 4 and 6 under prefix padding, and stride 8 under query padding."""
    prefix, query = (kind(pairs=4, contexts=2, residues=24) for kind in (PrefixPadding, QueryPadding))
    planted = [("full", 1, prefix), ("s4", 4, prefix), ("s6", 6, prefix), ("q8", 8, query)]
    out = tmp_path_factory.mktemp("runs") / "one"
    run([Arm(n, Planted(grid=WindowGrid(s, s), curve=[0.7] * s), p) for n, s, p in planted], out, 0)
    return out


def test_a_control_is_folded_by_the_largest_stride_of_its_fellows(folder):
    """Stride 1 folds nothing; 8 belongs to another coordinate and does not count."""
    arms, _ = read_arms([folder])
    assert [(arm.name, arm.control, arm.stride, arm.fold) for arm in arms] == [
        ("full", True, None, 6),
        ("s4", False, 4, 4),
        ("s6", False, 6, 6),
        ("q8", False, 8, 8),
    ]


def test_an_arm_stands_beside_the_control_of_its_own_protocol(folder):
    """Query padding has no control here, and a control has none itself."""
    arms, _ = read_arms([folder])
    full, s4, _, q8 = arms
    assert s4.control_among(arms) is full
    assert q8.control_among(arms) is None
    assert full.control_among(arms) is None


def test_the_moved_coordinate_is_the_one_that_is_folded(folder):
    """The query moves under query padding, the source under prefix padding."""
    arms, _ = read_arms([folder])
    for arm, field in ((arms[1], "source_position"), (arms[3], "query_position")):
        seen = arm.observations[5]
        assert arm.position(seen) == getattr(seen, field)


def test_names_that_two_runs_share_carry_their_run(folder, tmp_path):
    """Each arm keeps a name of its own, even where two folders are called the same, and its run's control."""
    again = tmp_path / "one"
    shutil.copytree(folder, again)
    arms, runs = read_arms([folder, again])
    assert list(runs) == ["one", "one (2)"]
    assert [arm.name for arm in arms][::4] == ["one: full", "one (2): full"]
    assert len({arm.name for arm in arms}) == 8
    assert arms[5].control_among(arms) is arms[4]


def test_without_folders_there_is_one_clear_line():
    """Nothing given is a mistake of the user's."""
    with pytest.raises(UsageError, match="no run folder given"):
        read_arms([])


@pytest.mark.parametrize(
    ("strides", "together"), [(None, None), ([], None), ([1], None), ([4], 4), ([4, 128], 4), ([4, 6], 12)]
)
def test_grids_repeat_together_after_their_least_common_multiple(strides, together):
    """No grid and stride 1 have no period; 4 and 6 have 12; of 4 and 128 the layouts only visit 4."""
    grids = (
        None if strides is None else [{"stride": stride, "width": stride, "shift": 0} for stride in strides]
    )
    assert common_stride(grids) == together


def test_an_arm_without_a_stride_is_folded_by_what_its_layouts_visit(tmp_path):
    """Eight groups of a needle test are eight residues, for their rates as well."""
    needle = Needle(
        tokenizer=made_tokenizer(made_words(700)), prompt_tokens=200, pairs=4, contexts=2, questions=2
    )
    grid = WindowGrid(1, 1)
    run([Arm("flat", Planted(grid=grid, curve=[0.7]), needle)], tmp_path, 0)
    ((arm,), _) = read_arms([tmp_path])
    assert (arm.stride, arm.fold, arm.residues) == (None, 8, 8)
