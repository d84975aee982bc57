"""Votes: several askings, one answer."""

import math

import numpy as np
import pytest

from phasescope import Reply, Trial, UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.mitigations import PhaseVote, shifted
from phasescope.protocols import PrefixPadding
from phasescope.records import NoReply

TRIAL = Trial((5, 6, 7, 8), (3,), (2, 3), 1, "block", "cluster", 0)


class Said:
    """Answers the n-th shift with the n-th reply."""

    name = "said"
    tokens = 0

    def __init__(self, replies: dict[int, Reply | NoReply]) -> None:
        self.replies = replies
        self.seen: list[Trial] = []

    def answer(self, trials):
        self.seen += trials
        return [self.replies[len(trial.prompt_ids) - 4] for trial in trials]


def reply(answer: int, p2: float, p3: float) -> Reply:
    best = max(p2, p3)
    return Reply(
        (answer,), 4, math.log(p3), (math.log(p2), math.log(p3)), None, math.log(best), abs(math.log(p2 / p3))
    )


def vote(replies: dict[int, Reply | NoReply], **settings) -> tuple[Reply | NoReply, Said]:
    backend = Said(replies)
    voting = PhaseVote(backend=backend, shifts=tuple(replies), pads=(1, 1, 1), **settings)
    (answer,) = voting.answer([TRIAL])
    return answer, backend


@pytest.mark.parametrize(("combine", "chosen"), [("mean", 3), ("margin", 2), ("majority", 2)])
def test_each_way_to_combine_chooses_by_its_own_rule(combine: str, chosen: int) -> None:
    """Two askings say 2, one of them by the largest margin; the mean probability is with 3."""
    said = {0: reply(2, 0.40, 0.39), 1: reply(2, 0.02, 0.0001), 2: reply(3, 0.01, 0.9)}
    said[1] = Reply((2,), 4, -9.2, (math.log(0.02), -9.2), None, math.log(0.02), 5.3)
    answer, _ = vote(said, combine=combine)
    assert answer.ids == (chosen,)


def test_log_probabilities_are_those_of_the_mean_probability() -> None:
    """Of the right answer and of every candidate."""
    answer, _ = vote({0: reply(2, 0.8, 0.2), 2: reply(3, 0.2, 0.6)})
    assert answer.answer_logprob == pytest.approx(math.log(0.4))
    assert answer.candidate_logprobs == pytest.approx((math.log(0.5), math.log(0.4)))


def test_the_adaptive_vote_asks_again_only_in_doubt() -> None:
    """A margin of one nat is enough in the first case, and not in the second."""
    sure, backend = vote({0: reply(2, 0.9, 0.1), 2: reply(3, 0.1, 0.9)}, below=1.0)
    assert (sure.ids, len(backend.seen)) == ((2,), 1)
    doubtful, backend = vote({0: reply(2, 0.5, 0.45), 2: reply(3, 0.1, 0.9)}, below=1.0)
    assert (doubtful.ids, len(backend.seen)) == ((3,), 2)


def test_an_asking_without_a_reply_does_not_vote() -> None:
    """And if there is none at all, the reason is told."""
    answer, _ = vote({0: NoReply("cut"), 2: reply(3, 0.2, 0.6)})
    assert answer.ids == (3,)
    assert vote({0: NoReply("cut"), 2: NoReply("late")})[0] == NoReply("cut")


def test_pads_stand_in_front_or_at_the_start_of_the_message() -> None:
    """The source moves along, and so does the message's end."""
    assert shifted(TRIAL, (1, 1)).prompt_ids == (1, 1, 5, 6, 7, 8)
    chat = Trial((9, 5, 6, 7, 9), (3,), (), 2, "b", "c", 0, content=(1, 4))
    moved = shifted(chat, (1,))
    assert (moved.prompt_ids, moved.source_position, moved.content) == ((9, 1, 5, 6, 7, 9), 3, (1, 5))


def test_two_shifts_half_a_stride_apart_lift_a_planted_hole() -> None:
    """One bad phase of eight; the vote must gain there and lose nowhere on average."""
    curve = [0.9, 0.9, 0.9, 0.2, 0.9, 0.9, 0.9, 0.9]
    planted = Planted(grid=WindowGrid(8, 8), curve=curve)
    protocol = PrefixPadding(pairs=12, contexts=20)
    voting = PhaseVote(backend=planted, shifts=(0, 4), pads=(0,) * 4)
    right = {"plain": np.zeros(8), "vote": np.zeros(8)}
    for batch in protocol.batches(planted.vocabulary(), np.random.default_rng(0)):
        for name, backend in (("plain", planted), ("vote", voting)):
            for trial, answer in zip(batch, backend.answer(batch), strict=True):
                right[name][trial.source_position % 8] += answer.ids == trial.answer_ids
    share = {name: count / (20 * 12 * 3) for name, count in right.items()}
    assert share["vote"][3] > share["plain"][3] + 0.3
    assert share["vote"].mean() > share["plain"].mean()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"shifts": ()}, "at least one"),
        ({"shifts": (0, 0)}, "each once"),
        ({"shifts": (0, 9)}, "9 needs as many pads; 3"),
        ({"shifts": (0,), "combine": "sum"}, "mean, margin, majority"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, said: str) -> None:
    """With what is allowed."""
    with pytest.raises(UsageError, match=said):
        PhaseVote(backend=Said({}), pads=(1, 1, 1), **settings)
