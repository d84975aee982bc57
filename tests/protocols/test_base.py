"""Scoring of replies."""

import pytest

from phasescope import Reply, Trial
from phasescope.protocols import PrefixPadding

PROTOCOL = PrefixPadding(pairs=2, contexts=1)
TRIAL = Trial((9, 8, 7, 6), (4,), (3, 4, 5), 1, "block", "cluster", 2)
LONG = Trial((9, 8, 7, 6), (4, 1), (3, 4, 5), 1, "block", "cluster", 2)


def test_an_observation_carries_the_facts_of_trial_and_reply() -> None:
    """Positions are indices into the prompt; the query stands on its last token."""
    seen = PROTOCOL.observe(TRIAL, Reply((5,), 4, -1.25, (-3.0, -1.25, -0.5)), "condition")
    assert seen.model_dump() == {
        "v": 1,
        "condition": "condition",
        "trial": TRIAL.digest,
        "cluster": "cluster",
        "block": "block",
        "layout": 2,
        "source_position": 1,
        "query_position": 3,
        "prompt_tokens": 4,
        "answer": 5,
        "text": None,
        "rival_logprob": None,
        "score": 0.0,
        "candidate_score": 0.0,
        "logprob": -1.25,
    }


@pytest.mark.parametrize(
    ("trial", "ids", "score"), [(TRIAL, (4,), 1), (TRIAL, (3,), 0), (LONG, (4, 1), 1), (LONG, (4, 2), 0)]
)
def test_an_answer_is_right_only_if_every_token_is(trial: Trial, ids: tuple[int, ...], score: int) -> None:
    """Exact match over the whole vocabulary."""
    assert PROTOCOL.observe(trial, Reply(ids, 4), "a").score == score


@pytest.mark.parametrize(
    ("logprobs", "score"),
    [
        ((-3.0, -1.0, -2.0), 1),
        ((-1.0, -3.0, -2.0), 0),
        ((-1.0, -1.0, -2.0), 0),
        ((-9.0, -8.0, -9.0), 1),
        (None, None),
    ],
)
def test_the_restricted_choice_is_right_only_if_it_beats_every_other_candidate(
    logprobs: tuple[float, ...] | None, score: int | None
) -> None:
    """It doesn't depend on tokens outside the candidates, and a tie is no right answer."""
    assert PROTOCOL.observe(TRIAL, Reply((7,), 4, -1.0, logprobs), "a").candidate_score == score


def test_a_trial_without_candidates_has_no_restricted_score() -> None:
    """Absent is not wrong."""
    bare = Trial((9, 8), (4,), (), 0, "b", "c", 0)
    assert PROTOCOL.observe(bare, Reply((4,), 2, -1.0, ()), "a").candidate_score is None
