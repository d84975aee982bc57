"""Which conditions a report has, by what they are folded, beside which control."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from benchmarks.made_tokenizer import made_tokenizer, made_words

from phasescope.backends import Planted
from phasescope.errors import UsageError
from phasescope.grid import WindowGrid
from phasescope.observations import Observations
from phasescope.protocols import Needle, PrefixPadding, QueryPadding
from phasescope.running.runner import Condition, run
from phasescope.statistics import conditions as stats_conditions
from phasescope.statistics.conditions import read_conditions
from tests.descriptions import described
from tests.statistics.planted import Design, flat, observe, plant


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A control and strides 4 and 6 under prefix padding, and stride 8 under query padding."""
    prefix, query = (kind(pairs=4, contexts=2, residues=24) for kind in (PrefixPadding, QueryPadding))
    planted = [("full", 1, prefix), ("s4", 4, prefix), ("s6", 6, prefix), ("q8", 8, query)]
    out = tmp_path_factory.mktemp("runs") / "one"
    run([Condition(n, Planted(grid=WindowGrid(s, s), curve=[0.7] * s), p) for n, s, p in planted], out, 0)
    return out


def test_a_control_is_folded_by_the_largest_stride_of_its_fellows(folder):
    """Stride 1 folds nothing; 8 belongs to another coordinate and does not count."""
    conditions, _ = read_conditions([folder])
    assert [
        (condition.name, condition.control, condition.stride, condition.fold) for condition in conditions
    ] == [
        ("full", True, None, 6),
        ("s4", False, 4, 4),
        ("s6", False, 6, 6),
        ("q8", False, 8, 8),
    ]


@pytest.mark.parametrize(("visibility", "boundary"), [(None, [6, 7]), ("next", [7])])
def test_the_boundary_follows_when_entries_are_visible(visibility, boundary):
    """What run.json does not say is read at once; `next` leaves the value in the last slot its key."""
    facts = {} if visibility is None else {"visibility": visibility}
    one = described("a", [8], backend=facts)
    assert stats_conditions.Condition("a", "run", one, 8, Observations()).boundary == boundary


def test_a_condition_stands_beside_the_control_of_its_own_protocol(folder):
    """Query padding has no control here, and a control has none itself."""
    conditions, _ = read_conditions([folder])
    full, s4, _, q8 = conditions
    assert s4.control_among(conditions) is full
    assert q8.control_among(conditions) is None
    assert full.control_among(conditions) is None


def test_the_moved_coordinate_is_the_one_that_is_folded(folder):
    """The query moves under query padding, the source under prefix padding."""
    conditions, _ = read_conditions([folder])
    for condition, field in ((conditions[1], "source_position"), (conditions[3], "query_position")):
        assert condition.positions[5] == getattr(condition.observations[5], field)


def test_names_that_two_runs_share_carry_their_run(folder, tmp_path):
    """Each condition keeps a name of its own, even where two folders are called the same, and its run's control."""
    again = tmp_path / "one"
    shutil.copytree(folder, again)
    conditions, runs = read_conditions([folder, again])
    assert list(runs) == ["one", "one (2)"]
    assert [condition.name for condition in conditions][::4] == ["one: full", "one (2): full"]
    assert len({condition.name for condition in conditions}) == 8
    assert conditions[5].control_among(conditions) is conditions[4]


def test_without_folders_there_is_one_clear_line():
    """Nothing given is a mistake of the user's."""
    with pytest.raises(UsageError, match="no run folder given"):
        read_conditions([])


def test_a_condition_without_a_stride_is_folded_by_what_its_layouts_visit(tmp_path):
    """Eight groups of a needle test are eight residues, for their rates as well."""
    needle = Needle(
        tokenizer=made_tokenizer(made_words(700)), prompt_tokens=200, pairs=4, contexts=2, questions=2
    )
    grid = WindowGrid(1, 1)
    run([Condition("flat", Planted(grid=grid, curve=[0.7]), needle)], tmp_path, 0)
    ((condition,), _) = read_conditions([tmp_path])
    assert (condition.stride, condition.fold, condition.described.protocol.residues) == (None, 8, 8)


def of_table(table, moves="source"):
    """A condition that answered the trials of a planted table."""
    description = described("w8s8", [8], moves=moves)
    return stats_conditions.Condition("w8s8", "run", description, 8, Observations(observe(table)))


def test_balanced_positions_have_equal_mean_and_sd(rng):
    """24 contexts whose sources start at every residue once agree to half a token."""
    mean, sd = of_table(plant(flat(8), Design(clusters=24, layouts=24, questions=12), rng)).depth_spread()
    assert mean < 0.5
    assert sd < 0.5


def test_a_fixed_start_is_caught(rng):
    """Sources that all start at 0 are 23 tokens deeper at the last residue than at the first."""
    table = plant(flat(8), Design(clusters=4, layouts=24, questions=1), rng)
    table.source_CLQ[:] = np.arange(24)[None, :, None]
    assert of_table(table).depth_spread() == (23, 0)


def test_depth_is_that_of_the_moved_position(rng):
    """A query that never moves has one residue only, and nothing to compare it with."""
    assert of_table(plant(flat(8), Design(clusters=4), rng), "query").depth_spread() == (0, 0)


def test_without_observations_there_is_no_depth_to_compare():
    """As in a run that has just begun."""
    assert (
        stats_conditions.Condition("a", "run", described("a", [8]), 8, Observations()).depth_spread() is None
    )
