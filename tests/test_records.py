"""Trials, and the facts that are kept of them."""

import pytest
from pydantic import ValidationError

from phasescope import Observation, Trial
from phasescope.records import Dropped
from tests.descriptions import observation

TRIAL = Trial((1, 2, 3), (4,), (4, 5), 1, "b", "c", 0)


@pytest.mark.parametrize(
    "other",
    [
        Trial((1, 2), (3, 4), (4, 5), 1, "b", "c", 0),
        Trial((1, 2, 3), (4, 4), (5,), 1, "b", "c", 0),
        Trial((1, 2, 3), (4,), (5, 4), 1, "b", "c", 0),
        Trial((1, 3, 2), (4,), (4, 5), 1, "b", "c", 0),
    ],
)
def test_a_digest_changes_with_what_is_asked_and_with_what_counts_as_right(other: Trial) -> None:
    """Also where only the border between prompt, answer and candidates moves."""
    assert other.digest != TRIAL.digest


def test_a_digest_names_the_question_and_not_its_place_in_the_run() -> None:
    """The same question in another block has the same digest, in every process and version."""
    assert TRIAL.digest == Trial((1, 2, 3), (4,), (4, 5), 2, "x", "y", 3).digest == "bb6d9ee84a317652"


@pytest.mark.parametrize(
    "change",
    [
        *({"score": 1.5}, {"layout": -1}, {"prompt_tokens": 0}, {"phase": 3}, {"v": 2}),
        *({"logprob": float("nan")}, {"logprob": 1e308}, {"rival_logprob": -1e308}),
    ],
)
def test_an_observation_refuses_what_is_no_fact_of_its_schema(change: dict[str, float]) -> None:
    """Out-of-range numbers, unknown fields and other versions don't pass."""
    with pytest.raises(ValidationError):
        Observation.model_validate(observation(1).model_dump() | change)


@pytest.mark.parametrize("change", [{"score": 1.0}, {"dropped": None}, {"layout": -1}])
def test_a_dropped_trial_holds_no_score(change: dict[str, object]) -> None:
    """It is counted, and nothing else."""
    lost = Dropped(condition="a", trial="0", cluster="c", block="b", layout=1, dropped="lost")
    with pytest.raises(ValidationError):
        Dropped.model_validate(lost.model_dump() | change)
