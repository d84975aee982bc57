"""Mitigations on prompts of their own: planted models whose answer is known."""

from pathlib import Path

import numpy as np
import pytest

from phasescope import BrokenRecordError, WindowGrid
from phasescope.backends import Planted
from phasescope.mitigations import (
    MitigateSettings,
    MitigationResult,
    compare,
    conditions,
    read_mitigation,
    result_of,
)
from phasescope.protocols import InSequencePadding
from phasescope.running.runner import run
from phasescope.runs import read_run

from .test_pack import profile

CURVE = (0.9, 0.9, 0.85, 0.9, 0.9, 0.3, 0.2, 0.9)


def trial(folder: Path, *curve: float, sensitive: bool = True) -> MitigationResult:
    measured = profile(*curve, sensitive=sensitive)
    planted = Planted(grid=WindowGrid(8, 8), curve=curve)
    made = conditions(
        planted, InSequencePadding(pairs=12, contexts=24), measured, MitigateSettings(shifts=(0, 4))
    )
    run(made, folder, seed=3)
    return result_of(folder, measured, seed=3)


def test_packing_and_voting_win_where_the_model_is_weak_and_say_what_they_cost(tmp_path: Path) -> None:
    """The worst residue comes to within five points of the best; random pads, as many, win less."""
    result = trial(tmp_path, *CURVE)
    found = {outcome.with_: outcome for outcome in result.outcomes}
    packed, random = found["records packed"].comparison, found["records padded at random"].comparison
    assert packed.worst_with.value > packed.best_with.value - 0.05
    assert packed.worst_gain.low > 0.5
    assert packed.mean_with > random.mean_with + 0.05
    assert found["records packed"].pads == found["records padded at random"].pads <= 12 * (8 / 2 + 1)
    vote = found["vote"].comparison
    assert (
        vote.worst_with.value - vote.worst_without.value > (vote.mean_without - vote.worst_without.value) / 2
    )
    assert vote.mean_gain.low > 0
    assert 1.9 < found["vote"].tokens < 2.3
    assert "stride 8" in "\n".join(result.lines())
    result.write(tmp_path / "mitigation.json")
    again = read_mitigation(tmp_path / "mitigation.json")
    assert again == result
    assert len(repr(again)) < 250
    assert again.to_arrow().num_rows == 4 * 8


@pytest.mark.parametrize("content", ["{}", "[]", '{"profile": [], "outcomes": 3}', '{"outcomes": ['])
def test_a_damaged_result_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    """Whatever is wrong with it."""
    (tmp_path / "mitigation.json").write_text(content)
    with pytest.raises(BrokenRecordError) as refused:
        read_mitigation(tmp_path / "mitigation.json")
    assert "\n" not in str(refused.value)


def test_a_flat_model_gets_no_pads_and_loses_nothing(tmp_path: Path) -> None:
    """The same answers, to the last one."""
    found = {outcome.with_: outcome for outcome in trial(tmp_path, *[0.7] * 8, sensitive=False).outcomes}
    packed = found["records packed"]
    assert (packed.pads, packed.comparison.mean_gain.value) == (0, 0)
    assert found["vote"].comparison.mean_gain.high > 0


def test_gains_are_those_of_the_same_question(tmp_path: Path) -> None:
    """A condition compared with itself gains nothing anywhere, with no width to the interval."""
    trial(tmp_path, *CURVE)
    plain = read_run(tmp_path).observations["plain"]
    same = compare(plain, plain, 8, worst=6, rng=np.random.default_rng(0))
    assert [gain.value for gain in same.gain] == [0] * 8
    assert (same.worst_gain.low, same.worst_gain.high) == pytest.approx((0, 0))
    assert same.without == same.with_
