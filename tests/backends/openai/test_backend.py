"""Measuring over HTTP: what a known model behind a server says, verified, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from phasescope import Observation, Reply, Trial, UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.backends.openai.backend import OpenAIBackend
from phasescope.backends.openai.doubts import fronts
from phasescope.errors import PhasescopeError, ServerError
from phasescope.logs import read_log
from phasescope.protocols import PrefixPadding
from phasescope.records import Dropped, NoReply
from phasescope.running.runner import Condition, run
from phasescope.runs import read_run
from phasescope.testing.fake_server import FakeServer, Fault, Kind, Offers
from phasescope.testing.fake_server.model import RARE, Hashed, PlantedModel
from phasescope.text.tokens import Tokenizer

from ..conftest import QUICK, small_tokenizer

CURVE = (0.9, 0.9, 0.7, 0.3)
SMALL = PrefixPadding(pairs=6, contexts=2, residues=8, questions=3)
BATCH = 24
FRONTS, AGAIN = 3, 3
"""Requests before a run's first batch, and behind each, that find out what a server does not read or mixes up."""

LLAMA = Offers(logprobs="records", top=0, caches="cache_prompt")
VLLM = Offers(top=20, named=128, prompt_logprobs=True, echoes=True)
BARE = Offers(token_ids=False, logprobs=None)


def planted(**settings: Any) -> Planted:
    """A curve with one bad phase, and no effect beside it."""
    return Planted(**{"grid": WindowGrid(4, 4), "curve": CURVE, **settings})


def served(offers: Offers = LLAMA, **settings: Any) -> FakeServer:
    """A server of that model."""
    return FakeServer(PlantedModel(planted()), offers, **settings)


def backend(server: FakeServer, **settings: Any) -> OpenAIBackend:
    """A backend in a hurry; the vocabulary is the planted one."""
    return OpenAIBackend(server.url, **{"limits": QUICK, "vocabulary": planted().ids, **settings})


def measured(server: FakeServer, out: Path, **settings: Any) -> list[Observation | Dropped]:
    """The log of a small run."""
    run([Condition("a", backend(server, **settings), SMALL)], out, seed=5)
    return list(read_log(out / "observations.jsonl"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observation]:
    """What the planted backend itself answers, by trial."""
    out = tmp_path_factory.mktemp("reference")
    run([Condition("a", planted(), SMALL)], out, seed=5)
    return {
        line.trial: line for line in read_log(out / "observations.jsonl") if isinstance(line, Observation)
    }


def batch() -> tuple[Trial, ...]:
    """The first batch of the small protocol."""
    return next(SMALL.batches(planted().ids, np.random.default_rng(0)))


@pytest.mark.parametrize("offers", [LLAMA, VLLM, replace(VLLM, named=0), replace(LLAMA, top=1000)])
def test_a_planted_model_behind_a_server_gives_the_observations_of_the_planted_backend(
    tmp_path: Path, offers: Offers, reference: dict[str, Observation]
) -> None:
    """Trial by trial: answer, score, the score among candidates and the log-probability."""
    with served(offers) as server:
        log = measured(server, tmp_path)
    assert {line.trial for line in log} == reference.keys()
    for line in log:
        assert isinstance(line, Observation)
        wanted = reference[line.trial]
        assert line == wanted.model_copy(update={"candidate_score": line.candidate_score})
        assert line.candidate_score in (None, wanted.candidate_score)
    named = [line.candidate_score for line in log if isinstance(line, Observation)]
    assert (None in named) == (offers.named == 0 and offers.top == 20)


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_replies_do_not_depend_on_how_many_requests_are_under_way(
    tmp_path: Path, concurrency: int, reference: dict[str, Observation]
) -> None:
    """The log is the same, in the same order, and no more requests are under way than allowed."""
    with served() as server:
        log = measured(server, tmp_path, limits=QUICK.model_copy(update={"concurrency": concurrency}))
    assert log == list(reference.values())
    assert server.under_way <= concurrency
    assert server.under_way > 1 or concurrency == 1


LIES = ("swapped answers", "end alone read")  # of whole servers; they have tests of their own
FAULTS: list[Kind] = [kind for kind in get_args(Kind) if kind not in LIES]
DEFECTS = {
    "missing log-probabilities": "log-probabilities missing",
    "wrong token count": "position drifted: more tokens read than planned",
    "two choices": "more than one choice where one was asked for",
    "answer to another request": "the answer to another request",
    "silently truncated prompt": "position drifted: fewer tokens read than planned",
    "impossible ids": "log-probabilities missing",
    "ids left out": "an answer whose text has no tokens",
    "impossible log-probability": "log-probabilities missing",
    "impossible count": "count of prompt tokens missing",
    "content filter": "an answer cut short (content_filter)",
}
HASTY = QUICK.model_copy(update={"timeout": 1.5})
TIMED = ("time-out", "slow drip", "answer without end")


def fault(kind: Kind, **settings: Any) -> Fault:
    """That fault; those that take time befall few trials, and last longer than anyone waits."""
    share = 0.06 if kind in TIMED else 0.2
    return Fault(**{"kind": kind, "share": share, "seconds": 2.5 if kind in TIMED else 0.05, **settings})


def no_wrong(log: list[Observation | Dropped], reference: dict[str, Observation]) -> None:
    """Every observation is the one that was planted."""
    for line in log:
        if isinstance(line, Observation):
            assert line == reference[line.trial]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_passing_fault_costs_at_most_the_trials_that_it_befalls(
    tmp_path: Path, kind: Kind, reference: dict[str, Observation]
) -> None:
    """Failures and unusable answers are asked again and leave no trace; drifted trials are dropped and counted."""
    with served() as server:
        asking = backend(server, limits=HASTY)
        server.fault = fault(kind)
        run([Condition("a", asking, SMALL)], tmp_path, seed=5)
    log = list(read_log(tmp_path / "observations.jsonl"))
    no_wrong(log, reference)
    assert {line.trial for line in log} == reference.keys()
    dropped = [line for line in log if isinstance(line, Dropped)]
    drifts = DEFECTS.get(kind, "").startswith("position drifted")
    assert bool(dropped) == drifts
    assert {line.dropped for line in dropped} <= {DEFECTS.get(kind)}
    assert asking.client.repeated > 0 or drifts


def test_answers_that_go_astray_more_often_than_one_request_is_repeated_cost_no_trial(
    tmp_path: Path, reference: dict[str, Observation]
) -> None:
    """A trial may meet other trials' answers again and again; it is asked later once more."""
    with served() as server:
        asking = backend(server, limits=HASTY)
        server.fault = fault("answer to another request", share=1.0, times=3)
        run([Condition("a", asking, SMALL)], tmp_path, seed=5)
    assert list(read_log(tmp_path / "observations.jsonl")) == list(reference.values())


@pytest.mark.parametrize("kind", FAULTS)
def test_a_lasting_fault_drops_its_trials_or_stops_the_run_to_be_resumed(
    tmp_path: Path, kind: Kind, reference: dict[str, Observation]
) -> None:
    """A defect of single trials is counted; a server that fails ends the run in one line, and it goes on later."""
    with served() as server:
        asking = backend(server, limits=HASTY.model_copy(update={"tries": 2}))
        server.fault = fault(kind, times=None)
        if kind in DEFECTS:
            run([Condition("a", asking, SMALL)], tmp_path, seed=5)
        else:
            with pytest.raises(ServerError, match="the same command goes on from there") as caught:
                run([Condition("a", asking, SMALL)], tmp_path, seed=5)
            assert "\n" not in str(caught.value)
        server.fault = None
        run([Condition("a", backend(server), SMALL)], tmp_path, seed=5)
    log = list(read_log(tmp_path / "observations.jsonl"))
    no_wrong(log, reference)
    assert [line.trial for line in log] == list(reference)
    reasons = {line.dropped for line in log if isinstance(line, Dropped)}
    assert reasons == ({DEFECTS[kind]} if kind in DEFECTS else set())


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_from_the_first_request_on_mislead_no_measurement(
    tmp_path: Path, kind: Kind, reference: dict[str, Observation]
) -> None:
    """The probe is hit as well: the run ends in one line, or with nothing but right observations."""
    with served(fault=fault(kind, times=2)) as server, contextlib.suppress(PhasescopeError):
        measured(server, tmp_path, limits=HASTY)
    path = tmp_path / "observations.jsonl"
    no_wrong(list(read_log(path)) if path.exists() else [], reference)


@pytest.mark.parametrize("offers", [LLAMA, replace(LLAMA, top=20), replace(VLLM, echoes=False), VLLM])
@pytest.mark.parametrize("concurrency", [2, 3, 8])
def test_swapped_answers_are_no_observations(
    tmp_path: Path, offers: Offers, concurrency: int, reference: dict[str, Observation]
) -> None:
    """Each answer is delivered once, to another request: told by numbers of log-probabilities, echoes, or a sample."""
    with served(offers) as server:
        asking = backend(server, limits=QUICK.model_copy(update={"concurrency": concurrency}))
        server.fault = Fault(kind="swapped answers", share=1.0, times=None)
        run([Condition("a", asking, SMALL)], tmp_path, seed=5)
    for line in read_log(tmp_path / "observations.jsonl"):
        assert isinstance(line, Observation)  # asked one at a time, every trial has its own answer
        wanted = reference[line.trial]
        assert line == wanted.model_copy(update={"candidate_score": line.candidate_score})


@pytest.mark.parametrize("offers", [LLAMA, replace(LLAMA, top=20), replace(VLLM, echoes=False)])
def test_a_server_that_reads_the_end_alone_is_refused_whatever_it_counts(
    tmp_path: Path, offers: Offers
) -> None:
    """Its log-probabilities do not change with the front of the prompt; nothing is written."""
    with served(offers) as server:
        asking = backend(server)
        server.fault = Fault(kind="end alone read", share=1.0, times=None)
        with pytest.raises(UsageError, match="does not read the front of its prompts"):
            run([Condition("a", asking, SMALL)], tmp_path, seed=5)
    assert not (tmp_path / "observations.jsonl").exists()


def test_batches_that_were_finished_before_the_server_failed_stay(
    tmp_path: Path, reference: dict[str, Observation]
) -> None:
    """The second batch fails; the first is kept byte by byte, and not asked again."""
    limits = HASTY.model_copy(update={"tries": 1, "concurrency": 1})
    with served() as server:
        asking = backend(server, limits=limits)
        server.asked.clear()

        def report(done: int, total: int) -> None:
            server.fault = Fault(kind="500", share=1.0, times=None) if done >= BATCH else None

        with pytest.raises(ServerError):
            run([Condition("a", asking, SMALL)], tmp_path, seed=5, report=report)
        first = (tmp_path / "observations.jsonl").read_bytes()
        assert len(first.splitlines()) == 1 + BATCH
        server.fault = None
        again = backend(server)
        server.asked.clear()
        run([Condition("a", again, SMALL)], tmp_path, seed=5)
    assert len(server.asked) == BATCH + FRONTS + AGAIN
    assert (tmp_path / "observations.jsonl").read_bytes().startswith(first)
    assert list(read_log(tmp_path / "observations.jsonl")) == list(reference.values())


def test_a_server_that_drops_everything_stops_before_the_money_is_spent(tmp_path: Path) -> None:
    """After the first trials one line names the reason; nothing is kept, so the same command asks again."""
    protocol = PrefixPadding(pairs=6, contexts=20, residues=24, questions=3)
    with served() as server:
        asking = backend(server)
        server.asked.clear()
        server.fault = Fault(kind="wrong token count", share=1.0, times=None)
        with pytest.raises(
            UsageError, match=r"none of the 72 trials of a could be observed: position drifted"
        ):
            run([Condition("a", asking, protocol)], tmp_path, seed=5)
        assert len(server.asked) == 72 + FRONTS
    assert not (tmp_path / "observations.jsonl").exists()


def test_a_prompt_as_text_is_sent_only_if_it_comes_back_as_the_same_tokens(tmp_path: Path) -> None:
    """Verified by the count; a prompt whose text means other tokens is dropped."""
    small = small_tokenizer()
    joined = small.fast.token_to_id("b"), small.fast.token_to_id("a"), small.fast.token_to_id("b")
    with FakeServer(Hashed(small.size - 4), BARE, small) as server:
        asking = OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        assert asking.describe()["asked"] == {"text": "token counts"}
        ids = tuple(small.encode("bab dad gab."))
        right, drifting = asking.answer([trial(ids), trial((*ids, *joined))])
    assert isinstance(right, Reply)
    (likeliest, *_) = Hashed(small.size - 4).next_token(ids)
    assert right.ids == tuple(small.encode(small.decode([likeliest])))
    assert (right.prompt_tokens, right.answer_logprob, right.candidate_logprobs) == (len(ids), None, None)
    assert drifting == NoReply("the prompt's text gives other tokens")


def trial(ids: tuple[int, ...], answer: tuple[int, ...] = (3,), **settings: Any) -> Trial:
    """A question about nothing."""
    return Trial(ids, answer, (), 0, "b", "c", 0, **settings)


def test_a_bos_that_the_server_adds_is_left_to_it_and_counted() -> None:
    """Prompts that begin with the BOS are sent without it; others would be moved, and are refused."""
    small = small_tokenizer(start=True)
    with FakeServer(Hashed(9), replace(BARE, start=small.start_ids), small) as server:
        asking = OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        ids = (*small.start_ids, *small.encode("bab dad"))
        (reply,) = asking.answer([trial(ids)])
        assert isinstance(reply, Reply)
        assert server.asked[-1][1]["prompt"] == "bab dad"
        with pytest.raises(UsageError, match="puts 1 tokens in front of every text"):
            asking.answer([trial(ids[1:])])


def test_a_chat_is_asked_by_its_message_and_counted_with_its_template() -> None:
    """The server puts its own template around; what it reads is what was planned."""
    small = small_tokenizer()
    ids, span = small.chat("bab dad gab")
    with FakeServer(Hashed(small.size - 4), replace(BARE, chat=True, completions=False), small) as server:
        asking = OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        assert asking.describe()["asked"] == {"chat": "token counts"}
        (reply,) = asking.answer([trial(tuple(ids), content=span, generate=3)])
        assert server.asked[-1][1]["messages"] == [{"role": "user", "content": "bab dad gab"}]
        with pytest.raises(UsageError, match="cannot be asked a plain prompt"):
            asking.answer([trial(tuple(ids))])
    assert isinstance(reply, Reply)
    read = list(ids)
    for _ in range(3):
        told = Hashed(small.size - 4).next_token(read)
        read.append(max(told, key=told.__getitem__))
    assert reply.text == small.decode(read[len(ids) :])
    assert reply.prompt_tokens == len(ids)


def test_a_server_with_another_chat_template_is_refused() -> None:
    """Its own tokens would move every position by a constant."""
    small = small_tokenizer()
    other = replace(small, template="<|user|>" + str(small.template))
    with (
        FakeServer(Hashed(9), replace(BARE, chat=True, completions=False), other) as server,
        pytest.raises(UsageError, match="template has 4 tokens, that of small 3"),
    ):
        OpenAIBackend(server.url, tokenizer=small, limits=QUICK)


def test_the_form_of_the_prompts_may_be_chosen() -> None:
    """Ids come first, then the chat; what the server does not take is refused."""
    small = small_tokenizer()
    with FakeServer(Hashed(9), replace(LLAMA, chat=True), small) as server:
        for ask, asked in ((None, ["ids"]), ("ids", ["ids"]), ("text", ["text"]), ("chat", ["chat"])):
            described = OpenAIBackend(server.url, tokenizer=small, limits=QUICK, ask=ask).describe()
            assert list(described["asked"]) == asked
    with (
        FakeServer(Hashed(9), BARE, small) as server,
        pytest.raises(UsageError, match="cannot be asked as ids"),
    ):
        OpenAIBackend(server.url, tokenizer=small, limits=QUICK, ask="ids")


def test_what_nothing_can_verify_is_measured_only_on_demand() -> None:
    """Without a count, echo or /tokenize; the record then says that nothing verified it."""
    small = small_tokenizer()
    with FakeServer(Hashed(9), replace(BARE, counts=False), small) as server:
        with pytest.raises(UsageError, match=r"nothing tells which tokens .* reads"):
            OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        blind = OpenAIBackend(server.url, tokenizer=small, limits=QUICK, unverified=True)
        assert blind.describe()["asked"] == {"text": "nothing"}
        (reply,) = blind.answer([trial(tuple(small.encode("bab dad")))])
    assert isinstance(reply, Reply)


class OneMore(Tokenizer):
    """Puts one more token in front of every text."""

    def encode(self, text: str) -> list[int]:
        return [1, *super().encode(text)]


def test_without_counts_the_tokenize_endpoint_is_asked_once_per_layout() -> None:
    """It says which tokens a text is; a layout that it reads otherwise is dropped."""
    small = small_tokenizer()
    with FakeServer(Hashed(9), replace(BARE, counts=False, tokenize="content"), small) as server:
        asking = OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        assert asking.describe()["asked"] == {"text": "tokenize endpoint"}
        server.asked.clear()
        ids = tuple(small.encode("bab dad"))
        three = [replace(trial(ids), layout=layout) for layout in (0, 0, 1)]
        assert all(isinstance(reply, Reply) for reply in asking.answer(three))
        assert [path for path, _ in server.asked].count("/tokenize") == 2
        server.tokenizer = OneMore(small.fast, small.name, small.template)
        assert asking.answer([replace(trial(ids), layout=2)]) == [
            NoReply("position drifted: other tokens read than planned")
        ]


def test_an_answer_beyond_the_top_has_no_log_probability_and_is_kept() -> None:
    """To drop it would favour right answers; where all trials lack it, the outcome is just not there."""
    ids = batch()[0].prompt_ids
    with served(replace(VLLM, named=0, prompt_logprobs=False)) as server:
        asking = backend(server)
        likely, rare = asking.answer([trial(ids, batch()[0].answer_ids), trial(ids, (2,))])
    assert isinstance(likely, Reply)
    assert isinstance(rare, Reply)
    assert likely.answer_logprob is not None
    assert rare.answer_logprob is None


def test_a_whole_vocabulary_is_asked_for_only_if_the_answer_is_not_among_the_likely_ones() -> None:
    """The second request gives the exact value."""
    small = small_tokenizer()
    with FakeServer(Hashed(9), LLAMA, small) as server:
        asking = OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        assert asking.capabilities.completions is not None
        assert asking.capabilities.completions.top == small.size
        server.asked.clear()
        (reply,) = asking.answer([trial(tuple(range(40, 60)), (20,))])
    assert isinstance(reply, Reply)
    assert reply.answer_logprob == RARE
    assert [body["logprobs"] for _, body in server.asked[FRONTS:]] == [1001, small.size]


class Forgetful(FakeServer):
    """A server that reads a prompt otherwise when it is to tell the whole vocabulary."""

    def answer(self, path: str, body: Any, fault: Any) -> Any:
        cut = (
            "silently truncated prompt"
            if body.get("logprobs", 0) > 1100 and len(body["prompt"]) < 64
            else fault
        )
        return super().answer(path, body, cut)


def test_a_second_request_that_goes_wrong_costs_the_log_probability_and_not_the_trial() -> None:
    """It is made for unlikely answers only, so dropping these trials would favour right answers."""
    small = small_tokenizer()
    with Forgetful(Hashed(9), LLAMA, small) as server:
        asking = OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        (reply,) = asking.answer([trial(tuple(range(40, 60)), (20,))])
        assert server.asked[-1][1]["logprobs"] == small.size
    assert isinstance(reply, Reply)
    assert reply.answer_logprob is None


@pytest.mark.parametrize("way", ["prompt_logprobs", "echo"])
def test_longer_answers_are_read_as_part_of_the_prompt(way: str) -> None:
    """Their log-probability is the sum over tokens, each after the right ones, whatever the model says."""
    offers = replace(VLLM, prompt_logprobs=way == "prompt_logprobs", echo=way == "echo")
    model, ids = Hashed(900), tuple(range(40, 60))
    (likely, *_) = model.next_token(ids)
    (second, *_) = model.next_token((*ids, likely))
    with FakeServer(model, offers) as server:
        asking = OpenAIBackend(server.url, limits=QUICK)
        right, wrong = asking.answer([trial(ids, (likely, second)), trial(ids, (likely, (second + 5) % 900))])
    assert isinstance(right, Reply)
    assert isinstance(wrong, Reply)
    assert right.ids == (likely, second)
    assert right.answer_logprob == pytest.approx(-0.2)
    assert wrong.answer_logprob == pytest.approx(RARE - 0.1)


def test_longer_answers_have_no_log_probability_where_the_prompt_has_none() -> None:
    """The sum of what happened to be generated would exist for right answers only."""
    model, ids = Hashed(900), tuple(range(40, 60))
    (likely, *_) = model.next_token(ids)
    with FakeServer(model, LLAMA) as server:
        (reply,) = OpenAIBackend(server.url, limits=QUICK).answer([trial(ids, (likely, 3))])
    assert isinstance(reply, Reply)
    assert len(reply.ids) == 2
    assert reply.answer_logprob is None


def test_log_probabilities_named_by_text_are_found_through_the_tokenizer() -> None:
    """As SGLang and hosted servers name them; a text that means two tokens is no name."""
    small = small_tokenizer()
    with FakeServer(Hashed(small.size - 4), Offers(names="text"), small) as server:
        asking = OpenAIBackend(server.url, tokenizer=small, limits=QUICK)
        ids = tuple(small.encode("bab dad"))
        told = Hashed(small.size - 4).next_token(ids)
        likely, rival = sorted(told, key=told.__getitem__, reverse=True)
        first, second = asking.answer([trial(ids, (likely,)), trial(ids, (rival,))])
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    assert (first.answer_logprob, second.answer_logprob) == (-0.1, -3.0)
    assert first.ids == (likely,)


@pytest.mark.parametrize("lever", ["cache_prompt", "cache_salt"])
def test_the_prefix_cache_is_off_by_default_and_kept_warm_on_demand(lever: Any) -> None:
    """Off, nothing is read from it; warm, one worker asks the questions of a layout in order."""
    protocol = PrefixPadding(pairs=12, contexts=1, residues=6, questions=4)
    trials = next(protocol.batches(planted().ids, np.random.default_rng(0)))
    read = sum(len(trial.prompt_ids) for trial in trials)
    tokens = {}
    for warm in (False, True):
        with served(replace(LLAMA, caches=lever)) as server:
            asking = backend(server, prefix_cache=warm, limits=QUICK.model_copy(update={"concurrency": 2}))
            assert asking.describe()["prefix_cache"] == ("kept warm" if warm else f"off by {lever}")
            server.asked.clear()
            asking.answer(trials)
            tokens[warm] = asking.tokens
            asked = len(trials) + FRONTS + AGAIN
            assert sum(lever in body for _, body in server.asked) == (0 if warm else asked)
    assert read < tokens[False] <= read + AGAIN * max(len(trial.prompt_ids) for trial in trials)
    assert tokens[True] < read / 2


def test_the_description_holds_neither_address_nor_key_and_a_resumed_run_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was started again on another port goes on; nothing in the folder tells the key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    for _ in range(2):
        with served(replace(LLAMA, key="sk-very-secret")) as server:
            measured(server, tmp_path, grids=[WindowGrid(4, 4)])
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"sk-very-secret" not in content
    assert b"127.0.0.1" not in content
    described = read_run(tmp_path).description.conditions[0].backend.facts()
    assert described["grids"] == [{"width": 4, "stride": 4, "shift": 0}]
    assert described["asked"] == {"ids": "token counts"}


@pytest.mark.parametrize("key", [None, "sk-wrong-but-secret"])
def test_a_refused_key_is_one_line_that_does_not_show_it(
    monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Although this server repeats what it was given."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with (
        served(replace(LLAMA, key="sk-right")) as server,
        pytest.raises(ServerError, match="OPENAI_API_KEY") as caught,
    ):
        backend(server)
    assert "sk-" not in str(caught.value)


def test_synthetic_prompts_need_a_tokenizer() -> None:
    """A server does not tell its vocabulary."""
    with served() as server, pytest.raises(UsageError, match="--tokenizer"):
        OpenAIBackend(server.url, limits=QUICK).vocabulary()


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, ".")
from tests.backends.openai.test_backend import SMALL, backend
from phasescope.running.runner import Condition, run

class At:
    url = sys.argv[2]

run([Condition("a", backend(At), SMALL)], Path(sys.argv[1]), seed=5)
"""


def test_an_interrupt_stops_at_once_and_the_run_goes_on_later(
    tmp_path: Path, reference: dict[str, Observation]
) -> None:
    """While every request hangs; afterwards the log is the one of an uninterrupted run."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    with served() as server:
        probing = len(server.asked)
        started = subprocess.Popen([*command, server.url], stderr=subprocess.PIPE, env=dict(os.environ))
        while len(server.asked) <= probing + 60 and started.poll() is None:
            time.sleep(0.005)
        server.fault = Fault(kind="time-out", share=1.0, times=None, seconds=60.0)
        time.sleep(0.3)
        before = time.monotonic()
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=10)
        assert time.monotonic() - before < 3
        assert started.returncode != 0
        assert said.rstrip().endswith(b"KeyboardInterrupt")
        server.fault = None
        subprocess.run([*command, server.url], check=True, env=dict(os.environ))
    assert list(read_log(tmp_path / "run" / "observations.jsonl")) == list(reference.values())


def test_the_salt_is_new_with_every_request() -> None:
    """A salt that came back would read what an interrupted run has left in the cache."""
    with served(replace(LLAMA, caches="cache_salt")) as server:
        backend(server).answer(batch()[:3])
        salts = [body["cache_salt"] for _, body in server.asked if "cache_salt" in body]
    assert len(salts) > 3
    assert len(set(salts)) == len(salts)


def test_a_run_says_as_json_what_its_server_can_do(tmp_path: Path) -> None:
    """Part of run.json: whoever reads the results knows how they were had."""
    with served(VLLM) as server:
        measured(server, tmp_path)
    described = json.loads((tmp_path / "run.json").read_text())["conditions"][0]["backend"]
    completions = described["server"]["completions"]
    assert (described["backend"], described["model"], described["grids"]) == ("openai", "planted", None)
    assert (completions["named"], completions["forced"], completions["echoes"]) == (
        128,
        "prompt_logprobs",
        True,
    )
    assert described["asked"] == {"ids": "echoed ids"}


def test_a_chat_is_given_another_front_inside_its_message() -> None:
    """The template around it is the server's, so that a server of chats alone can be asked."""
    ids = tuple(range(100, 140))
    chat = Trial(ids, (5,), (), 20, "b", "c", 0, content=(10, 36))
    first, *changed = fronts([chat])
    assert first == chat
    assert len({one.prompt_ids for one in (first, *changed)}) == 3
    for one in changed:
        assert one.content == (10, 36)
        assert one.prompt_ids[:10] == ids[:10]
        assert one.prompt_ids[28:] == ids[28:]
        assert sorted(one.prompt_ids) == sorted(ids)
    assert fronts([Trial(ids[:4], (5,), (), 0, "b", "c", 0)]) == []
