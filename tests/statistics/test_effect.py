"""What a run says of the model: its effect, and refusals of runs that measured something else."""

import dataclasses
from pathlib import Path

import pytest

from phasescope import UsageError, WindowGrid
from phasescope.backends.planted import Planted
from phasescope.protocols import InSequencePadding
from phasescope.running.runner import Condition, run
from phasescope.statistics.analyses import analyse_conditions
from phasescope.statistics.conditions import read_conditions
from phasescope.statistics.effect import read_effect

CURVES = {"steep": (0.9, 0.6, 0.6, 0.3), "flat": (0.6, 0.6, 0.6, 0.6)}


@dataclasses.dataclass
class Weighed(Planted):
    """A planted curve that says which weights it stands for."""

    def describe(self):
        return {**super().describe(), "digest": self.name}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One condition with an effect modulo 4 and one without."""
    out = tmp_path_factory.mktemp("run") / "planted"
    protocol = InSequencePadding(pairs=12, contexts=25, questions=12)
    conditions = [
        Condition(name, Weighed(grid=WindowGrid(4, 4), curve=curve, name=name, layout_sd=0.1), protocol)
        for name, curve in CURVES.items()
    ]
    run(conditions, out, seed=0)
    return out


def test_an_effect_has_its_period(folder: Path) -> None:
    """The condition of the same weights is chosen."""
    effect = read_effect(folder, digest="steep", draws=500)
    assert (effect.state, effect.period, effect.coordinate, effect.condition) == (
        "sensitive",
        4,
        "source",
        "steep",
    )
    assert "modulo 4" in effect.sentence


def test_no_effect_is_flat(folder: Path) -> None:
    """By name."""
    assert read_effect(folder, condition="flat", draws=500).state == "flat"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"condition": "none"}, "no condition 'none'; it has steep, flat"),
        ({"digest": "others"}, "other weights"),
        ({"condition": "flat", "digest": "steep"}, "other weights"),
        ({}, "several conditions that fit: steep, flat; name one with --condition"),
    ],
)
def test_a_run_of_something_else_is_refused(folder: Path, settings: dict, said: str) -> None:
    """In one line."""
    with pytest.raises(UsageError, match=said):
        read_effect(folder, **settings)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    """As everywhere."""
    with pytest.raises(UsageError, match=r"run\.json"):
        read_effect(tmp_path)


def test_an_effect_is_corrected_over_all_conditions_of_the_run_as_the_report_does(folder: Path) -> None:
    """Of 20 permutations over two conditions no corrected p could be significant (2 / 21): more are drawn."""
    few = read_effect(folder, condition="steep", draws=20)
    assert (few.state, few.period) == ("sensitive", 4)
    enough = read_effect(folder, condition="steep", draws=500)
    assert enough.state == analyse_conditions(*read_conditions([folder]), draws=500)["steep"].judgement.state
