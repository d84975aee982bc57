"""Two conditions with the same trials: what changed, and how often a change is seen where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phasescope import UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.protocols import InSequencePadding, PrefixPadding
from phasescope.running.runner import Condition, run
from phasescope.statistics.comparison import compare_conditions, matched
from phasescope.statistics.conditions import read_conditions
from tests.cli.in_process import phasescope

CURVE = (0.8,) * 7 + (0.4,)
NOISE = {"block_sd": 0.7, "cluster_sd": 0.5, "layout_sd": 0.3}


def planted(
    folder: Path, curve: tuple[float, ...], seed: int, name: str = "m", protocol: type = PrefixPadding
) -> Path:
    """A run of one condition; the trials are those of seed 0."""
    backend = Planted(grid=WindowGrid(8, 8), curve=curve, seed=seed, **NOISE)
    run([Condition(name, backend, protocol(pairs=8, questions=4, contexts=12))], folder, seed=0)
    return folder


def compared(before: Path, after: Path, draws: int = 499):
    """The one pair of two runs."""
    [(one, other)] = matched(read_conditions([before])[0], read_conditions([after])[0])
    return compare_conditions(one, other, np.random.default_rng(1), draws)


def test_a_loss_at_every_phase_is_a_change_of_the_mean_alone(tmp_path):
    """Its interval holds the planted loss, and the curves are not said to differ."""
    lower = tuple(p - 0.2 for p in (0.8,) * 8)
    found = compared(planted(tmp_path / "a", (0.8,) * 8, 1), planted(tmp_path / "b", lower, 1))
    assert found.change.low < -0.17 < found.change.high < 0
    assert found.change_p < 0.05 < found.curves_p
    assert found.trials == 12 * 4 * 24


def test_a_bad_phase_is_a_change_of_the_curve(tmp_path):
    """Seen between models of other names, which one protocol tells apart from nothing else."""
    found = compared(planted(tmp_path / "a", (0.75,) * 8, 1, "old"), planted(tmp_path / "b", CURVE, 2, "new"))
    assert (found.before, found.after, found.stride) == ("old", "new", 8)
    assert found.curves_p < 0.05
    assert found.spread_after.low > 0.05


@pytest.mark.slow
def test_no_change_is_seen_as_one_in_one_of_twenty(tmp_path):
    """Of 40 pairs of runs that differ by their noise alone, at most six for either test."""
    folders = [planted(tmp_path / str(seed), CURVE, seed) for seed in range(80)]
    found = [compared(*folders[2 * n : 2 * n + 2], draws=99) for n in range(40)]
    assert sum(one.change_p <= 0.05 for one in found) <= 6
    assert sum(one.curves_p <= 0.05 for one in found) <= 6
    assert sum(one.change.low <= 0 <= one.change.high for one in found) >= 33


def test_other_trials_and_other_protocols_are_not_compared(tmp_path):
    """A run of another seed, and one of another protocol, in one line each."""
    before = planted(tmp_path / "a", CURVE, 1)
    backend = Planted(grid=WindowGrid(8, 8), curve=CURVE, seed=1, **NOISE)
    run([Condition("m", backend, PrefixPadding(pairs=8, questions=4, contexts=12))], tmp_path / "b", seed=5)
    with pytest.raises(UsageError, match="not asked the same trials"):
        compared(before, tmp_path / "b")
    other = planted(tmp_path / "c", CURVE, 1, "n", InSequencePadding)
    with pytest.raises(UsageError, match="no condition of n has a counterpart among m"):
        compared(before, other)


def test_the_gate_has_an_exit_code(tmp_path):
    """Passed, worse, above the limit; and a folder without a run is bad input."""
    good, bad = planted(tmp_path / "a", (0.8,) * 8, 1), planted(tmp_path / "b", CURVE, 2)
    assert "no change is seen in 1,152 trials" in phasescope("compare", good, good, "--no-worse")
    assert "phases differ more" in phasescope("compare", good, bad)
    for option in (["--no-worse"], ["--max-phase-sd", "5"], ["--no-worse", "--max-phase-sd", "5"]):
        phasescope("compare", good, bad, *option, code=1)
    phasescope("compare", bad, good, "--no-worse", "--max-phase-sd", "5")
    assert "holds no run.json" in phasescope("compare", good, tmp_path, code=2)
