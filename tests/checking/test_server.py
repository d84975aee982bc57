"""A server as an engine, over completions of a few lines and over HTTP."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from phasescope import UsageError
from phasescope.backends.openai import client as openai_client
from phasescope.backends.openai.capabilities import Capabilities, Endpoint
from phasescope.backends.openai.client import Client, run
from phasescope.backends.openai.completions import Completions
from phasescope.backends.openai.replies import Answer, Position
from phasescope.checking import check
from phasescope.checking.server import ServerEngine, connected
from phasescope.errors import ServerError
from phasescope.testing.fake_server import FakeServer, Fault, Offers
from phasescope.testing.fake_server.model import Hashed
from phasescope.verbs.check import check as checked

from ..backends.conftest import QUICK
from .toy import Toy

IDS = tuple(range(40))
VLLM = Endpoint(
    "completions", token_ids=True, echoes=True, logprobs=True, by_id=True, top=20, forced="prompt_logprobs"
)


class ToyCompletions(Completions):
    """A toy engine behind requests, with a prefix cache and faults on demand."""

    def __init__(
        self, endpoint: Endpoint = VLLM, *, fault: str = "", tied: bool = False, **more: Any
    ) -> None:
        found = Capabilities("vllm", "toy", 512, endpoint, **{"uncached": "cache_salt", **more})
        super().__init__(Client("http://toy"), found)
        object.__setattr__(self, "engine", Toy(tied=tied))
        object.__setattr__(self, "fault", fault)
        object.__setattr__(self, "kept", {})
        object.__setattr__(self, "under_way", [])

    async def ask(self, endpoint, prompt, tokens, *, fields, refuse):
        self.under_way.append(prompt)
        await asyncio.sleep(0)  # all that are asked together are under way now
        together = len(self.under_way)
        await asyncio.sleep(0)
        self.under_way.remove(prompt)
        kept = self.kept.get(fields["cache_salt"], ()) if "cache_salt" in fields else ()
        shared = next((i for i, (a, b) in enumerate(zip(kept, prompt, strict=False)) if a != b), 0)
        self.kept[fields.get("cache_salt")] = prompt
        read = prompt
        if self.fault == "hits" and shared:
            hit = min(-(-shared // 16) * 16, len(kept), len(prompt) - 1)
            read = kept[:hit] + prompt[hit:]
        if self.fault == "batch" and together > 1 and len(prompt) > 20:
            read = prompt[1:]
        reading = self.engine.go_on(read, tokens)
        if self.fault == "decode":
            first = self.engine.go_on(prompt, 1).tokens
            later = self.engine.go_on(prompt[1:] + first, tokens - 1)
            reading = replace(reading, rows=reading.rows[:1] + later.rows, tokens=first + later.tokens)
        positions = tuple(map(position, reading.rows, reading.tokens))
        answer = Answer("", "", reading.tokens, len(prompt), None, None, positions)
        refuse(answer)
        return answer

    async def ask_prompt(self, endpoint, prompt, *, fields, use, top=0, refuse=None):
        inside = [position(one.rows[0], one.tokens[0]) for one in self.engine.inside(prompt, 0)]
        return use([Position("", None, {}), *inside])


def position(row, token: int) -> Position:
    """The twenty likeliest tokens."""
    return Position(
        token, float(row[token]), {int(token): float(row[token]) for token in np.argsort(row)[-20:]}
    )


def verdict(completions: ToyCompletions, **more):
    engine = ServerEngine(completions, run, ids=IDS, **{"dtype": "float32", "speculates": False, **more})
    return check(engine, strides=[4, 16], sweep=20, longest=90, cases=16)


def states(found) -> dict[str, str]:
    return {row.feature: row.state for row in found.rows}


def test_a_clean_server_holds_in_what_requests_can_bring_about() -> None:
    """Repeats, echo, decoding, prefix cache, concurrent requests; the rest no request can reach."""
    found = states(verdict(ToyCompletions()))
    assert [name for name, state in found.items() if state == "holds"] == [
        "repeat",
        "prefill",
        "decode",
        "prefix",
        "batch",
    ]
    assert found["parts"] == found["crop"] == found["speculation"] == "absent"


def test_without_control_of_the_cache_nothing_is_decided_about_it() -> None:
    """The verdict says which access would."""
    found = verdict(ToyCompletions(replace(VLLM, forced=None), uncached=None), speculates=None)
    assert states(found)["prefix"] == states(found)["prefill"] == "hidden"
    assert found.decision == "not decidable with this access"
    assert "cache_salt" in found.sentence
    assert "--no-drafts" in found.sentence


def test_rounded_prefix_hits_are_found() -> None:
    """With the block's size."""
    (row,) = verdict(ToyCompletions(fault="hits")).faults
    assert row.feature == "prefix"
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.stride) == ("cut", 16)


def test_a_fault_of_concurrent_requests_is_found() -> None:
    """From 21 tokens on."""
    (row,) = verdict(ToyCompletions(fault="batch")).faults
    assert row.feature == "batch"
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.least) == ("length", 21)


def test_decoding_that_differs_from_prefill_is_found() -> None:
    """On a model that is known to choose nothing by scores."""
    found = verdict(ToyCompletions(fault="decode"), selects=False)
    assert "decode" in {row.feature for row in found.faults}


def test_equal_scores_behind_a_server_accuse_nobody() -> None:
    """They cannot be seen there: undecided, with what would decide."""
    found = verdict(ToyCompletions(tied=True))
    assert not found.faults
    assert "--no-selection" in found.sentence


def test_an_unknown_number_format_is_refused() -> None:
    """With the known ones."""
    with pytest.raises(UsageError, match="bfloat16"):
        ServerEngine(ToyCompletions(), run, dtype="fp7")


class ToyModel:
    """The toy engine as the model of a fake server, which tells it ids from 40 on."""

    engine = Toy()

    def next_token(self, prompt_ids):
        row = self.engine.row(tuple((token - 40) % 40 for token in prompt_ids))
        return {index + 40: float(logprob) for index, logprob in enumerate(row)}


SMALL = {"strides": [4], "features": ["decode", "batch"], "cases": 4, "longest": 24, "sweep": 8}
OFFERS = Offers(caches="cache_salt", prompt_logprobs=True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that a test can afford."""
    monkeypatch.setattr("phasescope.checking.server.Limits", lambda: QUICK)


def test_a_server_is_checked_over_http() -> None:
    """Ids of tokens, lists of the most probable ones, and what its probe has found."""
    with FakeServer(ToyModel(), OFFERS) as server:
        found = checked(server.url, **SMALL | {"features": ["prefill", "decode", "prefix", "batch"]})
    assert not found.faults
    assert states(found) == dict.fromkeys(("repeat", "prefill", "decode", "prefix", "batch"), "holds")
    assert found.facts["cache_control"] == "cache_salt"


@pytest.mark.parametrize("kind", ["429 with a time", "500", "two choices", "missing log-probabilities"])
def test_a_passing_fault_of_the_server_does_not_end_the_check(quick: None, kind: Any) -> None:
    """Each is asked again, as `measure` does: a first 429 with Retry-After ended a check once."""
    with FakeServer(ToyModel(), OFFERS) as server, connected(server.url) as engine:
        clean = check(engine, **SMALL)
        server.fault = Fault(kind=kind, share=0.5, seconds=0.01)
        server.asked.clear()
        again = check(engine, **SMALL)
        assert len(server.asked) > len({repr(body.get("prompt")) for _, body in server.asked})
    assert again.rows == clean.rows


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("429", "status 429: slow down"),
        ("answer without end", "an answer of more than 1 MiB"),
        ("silently truncated prompt", "tokens read of a prompt of"),
        ("missing log-probabilities", "log-probabilities missing"),
        ("cut connection", "the connection failed"),
    ],
)
def test_a_lasting_fault_of_the_server_ends_the_check_in_one_line(
    quick: None, monkeypatch: pytest.MonkeyPatch, kind: Any, told: str
) -> None:
    """In bounded time and memory; the line says that nothing is kept."""
    monkeypatch.setattr(openai_client, "LARGEST_BODY", 2**20)
    with FakeServer(ToyModel(), OFFERS) as server, connected(server.url) as engine:
        server.fault = Fault(kind=kind, share=1.0, times=None)
        with pytest.raises(ServerError, match=told) as ended:
            check(engine, **SMALL)
    assert "nothing of a check is kept" in str(ended.value)
    assert "\n" not in str(ended.value)


@pytest.mark.parametrize(
    ("offers", "told"),
    [(Offers(logprobs=None), "no log-probabilities"), (Offers(token_ids=False), "token ids")],
)
def test_a_server_that_cannot_be_checked_is_refused(offers: Offers, told: str) -> None:
    """In one line."""
    with FakeServer(Hashed(9), offers) as server, pytest.raises(UsageError, match=told):
        checked(server.url)


@pytest.mark.parametrize(
    ("url", "error", "told"),
    [("ftp://x", UsageError, "no address"), ("http://127.0.0.1:9", ServerError, "the connection failed")],
)
def test_what_is_no_server_is_refused(quick: None, url: str, error: type[Exception], told: str) -> None:
    """In one line, without waiting long."""
    with pytest.raises(error, match=told):
        checked(url)


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    """A verdict is kept in logs of a CI."""
    with pytest.raises(UsageError, match="holds a user, a password") as refused:
        checked("http://me:hunter2@127.0.0.1:9")
    assert "hunter2" not in str(refused.value)
