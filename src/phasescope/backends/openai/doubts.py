"""What tells that a server mixes up its answers, or does not read what it counts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice

from ...errors import UsageError
from ...records import NoReply, Reply, Trial
from .capabilities import Endpoint
from .client import UnusableError
from .mismatched import ANOTHER
from .replies import Answer, Key, Position

LOGGER = logging.getLogger(__name__)
SHARE = 24
"""One trial of so many is asked again, alone; of every batch `FEWEST` at least."""
FEWEST = 3
MARKS = 64
"""Numbers of log-probabilities by which requests under way together are told apart."""
NEAR = 0.25
"""Nats by which the same answer may differ when it is computed beside other requests."""


async def mixed_up(
    trials: Sequence[Trial],
    replies: Mapping[int, Reply | NoReply],
    alone: Callable[[Trial], Awaitable[Reply | NoReply]],
) -> bool:
    """Whether a server mixes up answers to requests that are under way together.

    A sample is asked again, one at a time: by the trials' digests, and so the same in every worker. What differs from
    the first answer is asked a third time, because a server may also answer at random.

    Args:
        trials: of a batch.
        replies: to them, by their numbers.
        alone: asks one.
    """
    answered = [index for index, reply in replies.items() if isinstance(reply, Reply)]
    count = max(FEWEST, len(answered) // SHARE)
    for index in sorted(answered, key=lambda index: _digest(trials[index]))[:count]:
        again = await alone(trials[index])
        if agree(replies[index], again) or not agree(again, await alone(trials[index])):
            continue
        return True
    return False


def warn_of_mixing(host: str) -> None:
    """Say what is done about a server that mixes up answers."""
    what = (
        "mixes up the answers to requests that are under way together; it is asked one at a time from here on"
    )
    LOGGER.warning("%s %s", host, what)


async def refuse_short_sight(
    host: str, trials: Sequence[Trial], position: Callable[[Trial], Awaitable[Position | None]]
) -> None:
    """At the size of the run, another front of a prompt must change the log-probabilities, whatever the server counts.

    Args:
        host: the server.
        trials: of the run's first batch.
        position: the first token behind a prompt; None where its log-probability is not told.

    Raises:
        UsageError: if it changes nothing.
    """
    found = []
    for trial in fronts(trials):
        found.append(await position(trial))
        if found[-1] is None:
            return
    if found and alike(found):
        raise UsageError(
            f"{host} answers a prompt of {len(trials[0].prompt_ids):,} tokens and two with another front alike to the "
            "last digit: it does not read the front of its prompts, whatever it counts; raise its context length, or "
            "ask shorter prompts"
        )


def _digest(trial: Trial) -> bytes:
    return blake2b(trial.digest.encode(), digest_size=8, person=b"asked again").digest()


def agree(one: Reply | NoReply, other: Reply | NoReply) -> bool:
    """Whether two replies to one trial may be the same answer; a missing one says nothing."""
    if isinstance(one, NoReply) or isinstance(other, NoReply):
        return True
    if one.answer_logprob is not None and other.answer_logprob is not None:
        return abs(one.answer_logprob - other.answer_logprob) <= NEAR
    if one.ids and other.ids:
        return one.ids[0] == other.ids[0]
    return (one.text or "")[:1] == (other.text or "")[:1]


def tagged(endpoint: Endpoint, wanted: int, worker: int) -> int:
    """How many log-probabilities a worker asks for: a number of its own, by which its answers are known.

    Only where the server gives exactly as many as are asked for, and does not echo the prompt, which tells more.
    """
    if not endpoint.exact or endpoint.echoes:
        return wanted
    return min(wanted + 1 + worker % (MARKS - 1), endpoint.top)


def untagged_most(endpoint: Endpoint) -> int:
    """The most log-probabilities that leave room for numbers of their own."""
    return endpoint.top - MARKS if endpoint.exact and endpoint.top > 2 * MARKS else endpoint.top


def refuse_other_ids(asked: Sequence[int], answer: Answer) -> None:
    """Raise `UnusableError` for an answer that echoes as many ids as it was asked about, and others."""
    if (
        answer.prompt_ids is not None
        and len(answer.prompt_ids) == len(asked)
        and answer.prompt_ids != tuple(asked)
    ):
        raise UnusableError(ANOTHER)


def untagged(answer: Answer, asked: int, wanted: int) -> Answer:
    """An answer with as many log-probabilities as are wanted, whoever asked for it.

    Raises:
        UnusableError: if it has another number than was asked for: it is another request's.
    """
    if asked == wanted or not answer.positions:
        return answer
    if len(answer.positions[0].top) != asked:
        raise UnusableError(ANOTHER)
    return replace(answer, positions=tuple(_cut(position, wanted) for position in answer.positions))


def _cut(position: Position, wanted: int) -> Position:
    ranked: Mapping[Key, float] = dict(
        islice(sorted(position.top.items(), key=lambda pair: -pair[1]), wanted)
    )
    return replace(position, top=ranked)


def fronts(trials: Sequence[Trial]) -> list[Trial]:
    """A trial, and twice the same with another front, in which its source is not what it was.

    Two different changes: the front up to the source and a little more in reverse order, and moved around by a third.
    A server that reads the whole prompt answers them differently.
    """
    trial = min(trials, key=lambda one: (one.source_position, one.digest))
    # Of a chat only the message can be changed: a server puts its own template around it.
    begin, last = trial.content or (1, len(trial.prompt_ids) - 3)
    end = min(trial.source_position + 8, last - 1)
    if end - begin < 3:
        return []
    before, front, rest = trial.prompt_ids[:begin], trial.prompt_ids[begin:end], trial.prompt_ids[end:]
    third = len(front) // 3 + 1
    turned = (front[::-1], front[third:] + front[:third])
    changed = [replace(trial, prompt_ids=(*before, *ids, *rest)) for ids in turned]
    return [trial, *changed] if all(one.prompt_ids != trial.prompt_ids for one in changed) else []


def alike(positions: Sequence[Position | None]) -> bool:
    """Whether the first one's log-probabilities are those of all others, to the last digit."""
    first, *others = positions
    return first is not None and all(
        one is not None and one.key == first.key and one.logprob == first.logprob and one.top == first.top
        for one in others
    )
