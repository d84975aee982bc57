"""The coverage score: planted gates give the phase that they keep least."""

from __future__ import annotations

import numpy as np
import pytest
from research.explain_mitigate import chance_of_hits

from phasescope import WindowGrid
from phasescope.explaining.boundary import boundary, rolls_of
from phasescope.explaining.coverage_score import (
    CoverageScore,
    agreement,
    part,
    weakest_phases,
)
from phasescope.explaining.gates import Fact, GateTally, Read, part_by

GRID = WindowGrid(8, 8)


def read(layer: int, gate: list[float], grid: WindowGrid = GRID, windows: int = 6) -> Read:
    """A gate that has the same weights on every input."""
    weights = np.tile(np.asarray(gate) / np.sum(gate), (2, 1, windows, 1))[..., None]
    return Read(layer, (grid,), weights)


def facts(windows: int = 6) -> list[Fact]:
    """A fact at every position whose window is complete."""
    return [Fact(row, key, key + 1) for row in (0, 1) for key in range(8 * (windows - 1))]


def score_of(below: list[float], last: list[float]) -> CoverageScore:
    """The score of two layers of one head."""
    tally = GateTally(8)
    for _ in range(3):
        tally.add([read(0, below), read(1, last)], facts())
    found = tally.coverage_score()
    assert found is not None
    return found


def test_part_is_the_cosine_of_an_entry_with_its_token():
    """On orthogonal payloads, whatever the gate."""
    weights = np.array([0.5, 0.3, 0.2])
    entry = weights @ np.eye(3)
    assert part(weights) == pytest.approx(entry / np.linalg.norm(entry))


def test_a_gate_that_drops_a_slot_drops_the_phase_before_it():
    """The value stands one token behind its key: slot 4 holds the values of phase 3."""
    last = [1.0] * 8
    last[4] = 0.01
    found = score_of([0, 0, 0, 0, 0, 0, 1, 1], last)
    assert found.weakest == 3
    assert found.unkept == (3,)
    assert found.kept_HP.sum() == 7


def test_a_layer_below_that_keeps_no_closed_key_loses_the_boundary():
    """Phases 6 and 7 are read through the layer below's entries, the others raw."""
    found = score_of([1, 1, 1, 1, 1, 1, 0.02, 0.01], [1.0] * 8)
    assert found.link_AP[0, :6] == pytest.approx(1)
    assert found.link_AP[0, 6:].max() < 0.02
    assert found.weakest == 7
    assert found.unkept == (6, 7)


def test_the_best_head_counts():
    """A phase that one head keeps is kept."""
    found = CoverageScore(np.ones((1, 4)), np.array([[0.9, 0.9, 0.1, 0.2], [0.1, 0.1, 0.9, 0.8]]))
    assert found.unkept == ()
    assert found.weakest == 3
    assert found.prefers_HP().tolist() == [[True, True, False, False], [False, False, True, True]]


def test_raw_tokens_are_whole():
    """A tail window that reaches the key makes the link whole; so does a window that is not closed."""
    gate = [1, 0, 0, 0, 0, 0, 0, 0.0]
    closed = read(0, gate)
    parts = part(closed.weight_BHNWC[0, ..., 0])
    assert part_by(closed, parts, 7, 8)[0] == 0
    assert part_by(Read(0, (GRID,), closed.weight_BHNWC, raw=2), parts, 7, 8)[0] == 1
    assert part_by(closed, parts, 3, 4)[0] == 1
    assert part_by(closed, parts, 3, 11)[0] == 0
    assert part_by(closed, parts, 8 * 6 + 1, None)[0] == 1  # no complete window holds it


def test_a_single_layer_of_gates_gives_no_score():
    """There is no layer below that could have linked value and key."""
    tally = GateTally(8)
    tally.add([read(0, [1.0] * 8)], facts())
    assert tally.coverage_score() is None


def test_overlapping_windows_count_by_their_best():
    """W8/S4: each token lies in two windows, at slots s and s + 4."""
    grid = WindowGrid(8, 4)
    given = read(1, [0, 0, 0, 0, 1, 1, 1, 1], grid)
    parts = part(given.weight_BHNWC[0, ..., 0])
    assert part_by(given, parts, 9, None)[0] == pytest.approx(0.5)
    assert part_by(given, parts, 1, None)[0] == 0  # the first window alone, in its slot 1


def test_profile_tells_a_preference_that_recurs_from_one_that_follows_content():
    """The same weights on every input recur wholly; weights that are drawn anew do not."""
    rng = np.random.default_rng(0)
    fixed, drawn = GateTally(8), GateTally(8)
    gate = np.array([4.0, 2, 1, 1, 1, 1, 1, 1])
    for _ in range(4):
        fixed.add([read(0, gate.tolist())], [])
        loose = rng.dirichlet(np.ones(8), (2, 1, 50))
        drawn.add([Read(0, (GRID,), loose[..., None])], [])
    prior = {0: (gate / gate.sum())[None]}
    (steady,), (content,) = fixed.profiles(prior), drawn.profiles({})
    assert steady.recurrence == pytest.approx(1)
    assert steady.mean == pytest.approx(gate / gate.sum())
    assert steady.prior_distance == pytest.approx(0)
    assert steady.prior_correlation == pytest.approx(1)
    assert content.recurrence is not None
    assert content.recurrence < 0.02
    assert content.entropy_of_mean > 0.99 > content.entropy
    assert content.prior is None


def test_a_uniform_gate_has_nothing_that_could_recur():
    """Its weights do not vary at all."""
    tally = GateTally(8)
    tally.add([read(0, [1.0] * 8)], [])
    (profile,) = tally.profiles({})
    assert profile.recurrence is None
    assert profile.entropy == pytest.approx(1)


@pytest.mark.parametrize(
    ("grid", "parted", "closed"),
    [
        (WindowGrid(8, 8), (7,), (6, 7)),
        (WindowGrid(4, 4), (3,), (2, 3)),
        (WindowGrid(8, 4), (), (2, 3)),
        (WindowGrid(8, 8, 4), (3,), (2, 3)),
        (WindowGrid(1, 2), (0, 1), (0,)),
    ],
)
def test_the_boundary_follows_from_the_grid(grid, parted, closed):
    """Where no window holds key and value, and where the key is folded when the value is read."""
    assert boundary(grid, grid.stride) == (parted, closed)
    assert boundary(grid, grid.stride, raw=2)[1] == ()


@pytest.mark.parametrize(
    ("grid", "parted", "closed"),
    [(WindowGrid(8, 8), (7,), (7,)), (WindowGrid(8, 4), (), (3,)), (WindowGrid(8, 8, 4), (3,), (3,))],
)
def test_entries_that_are_read_late_leave_the_last_value_its_key(grid, parted, closed):
    """Only a key in a window's last slot is folded when its value is read."""
    assert boundary(grid, grid.stride, closing=False) == (parted, closed)


def test_a_boundary_repeats_within_a_multiple_of_its_stride():
    """Folded by 16, the phases of W8/S8 occur twice."""
    assert boundary(GRID, 16)[1] == (6, 7, 14, 15)


def test_rolls_are_every_number_of_slots_or_evenly_spread_ones():
    """A wide window is not rolled 127 times."""
    assert rolls_of(4) == [1, 2, 3]
    assert rolls_of(128) == [16, 32, 48, 64, 80, 96, 112]


def test_chance_of_hits_is_the_distribution_of_independent_draws():
    """By hand for two models, and the two ends."""
    assert chance_of_hits([8, 4], 0) == pytest.approx(1)
    assert chance_of_hits([8, 4], 1) == pytest.approx(1 - 0.75 * 0.5)
    assert chance_of_hits([8, 4], 2) == pytest.approx(0.25 * 0.5)
    assert chance_of_hits([8, 4], 3) == 0
    assert weakest_phases([0.5, 0.1, 0.3, 0.1]) == (1, 3)
    assert agreement(np.arange(4.0), np.arange(4.0) ** 2) == pytest.approx(1)
    assert agreement(np.ones(4), np.arange(4.0)) is None
