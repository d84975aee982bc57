"""Real servers: llama.cpp in every run, vLLM and `transformers serve` where an address is given.

PHASESCOPE_VLLM_URL and PHASESCOPE_TRANSFORMERS_URL name servers of SmolLM2-135M-Instruct (or of any model
whose tokenizer's folder PHASESCOPE_SERVER_TOKENIZER names); docs/servers.md says how they are started.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from phasescope import Reply, Trial
from phasescope.backends.openai.backend import OpenAIBackend
from phasescope.backends.openai.client import Limits
from phasescope.protocols import PrefixPadding
from phasescope.records import NoReply
from phasescope.running.runner import Condition, run
from phasescope.runs import read_run
from phasescope.text.tokens import Tokenizer

pytestmark = pytest.mark.slow
PATIENT = Limits.checked(timeout=300.0, concurrency=2)
SMALL = PrefixPadding(pairs=8, contexts=1, residues=4, questions=2)


@pytest.fixture(scope="module")
def tokenizer(smollm2_tokenizer: Path) -> Tokenizer:
    """That of the served model."""
    return Tokenizer.load(os.environ.get("PHASESCOPE_SERVER_TOKENIZER", smollm2_tokenizer))


@pytest.fixture(scope="module")
def llama(llama_url: str, tokenizer: Tokenizer) -> OpenAIBackend:
    """llama.cpp, probed."""
    return OpenAIBackend(llama_url, tokenizer=tokenizer, limits=PATIENT)


def served(name: str, tokenizer: Tokenizer) -> OpenAIBackend:
    """A server that somebody has started."""
    url = os.environ.get(f"PHASESCOPE_{name}_URL")
    if not url:
        pytest.skip(f"PHASESCOPE_{name}_URL is not set: this server was not asked")
    return OpenAIBackend(url, tokenizer=tokenizer, limits=PATIENT)


def trials(tokenizer: Tokenizer) -> tuple[Trial, ...]:
    """A context in four layouts with two questions."""
    return next(SMALL.batches(tokenizer.vocabulary(), np.random.default_rng(0)))


def replies(backend: OpenAIBackend, asked: tuple[Trial, ...]) -> list[Reply]:
    """Replies to trials of which none may be lost."""
    told = backend.answer(asked)
    assert not [reply for reply in told if isinstance(reply, NoReply)]
    return [reply for reply in told if isinstance(reply, Reply)]


def test_llama_cpp_is_found_out(llama: OpenAIBackend, tokenizer: Tokenizer) -> None:
    """Ids, right counts, a whole vocabulary of log-probabilities by id, none of the prompt, a cache that can be off."""
    found = llama.capabilities
    assert found.completions is not None
    assert found.chat is not None
    assert (found.server, found.tokenize, found.uncached) == ("llamacpp", "content", "cache_prompt")
    assert (found.completions.token_ids, found.completions.counts, found.completions.by_id) == (
        True,
        True,
        True,
    )
    assert (found.completions.top, found.completions.forced, found.completions.named) == (
        tokenizer.size,
        None,
        0,
    )
    planned = len(tokenizer.chat("a b c")[0]) - len(tokenizer.encode("a b c"))
    assert (found.chat.counts, found.chat.extra) == (True, planned)
    assert llama.describe()["asked"] == {"ids": "token counts"}


def test_llama_cpp_is_measured_with_exact_log_probabilities(
    llama: OpenAIBackend, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Each trial has a log-probability, also of an unlikely answer; greedy is what is likeliest."""
    run([Condition("smollm2", llama, SMALL)], tmp_path, seed=0)
    seen = read_run(tmp_path).observations["smollm2"]
    assert len(seen) == 8
    assert not read_run(tmp_path).dropped["smollm2"]
    for line in seen:
        assert line.logprob is not None
        assert line.logprob < 0
        assert (
            (line.score == 1) == (line.logprob > np.log(0.5))
            or line.score == 0
            or line.logprob > np.log(0.02)
        )
    control = replace(trials(tokenizer)[0], answer_ids=(0,), candidate_ids=())
    assert -60 < (replies(llama, (control,))[0].answer_logprob or 0) < -5


def test_llama_cpp_gives_the_same_greedy_ids_again(llama: OpenAIBackend, tokenizer: Tokenizer) -> None:
    """Asked one after the other and two at a time; log-probabilities agree to what batches change."""
    longer = tuple(replace(trial, generate=6) for trial in trials(tokenizer)[:4])
    llama.client.limits = PATIENT.model_copy(update={"concurrency": 1})
    alone = replies(llama, longer)
    llama.client.limits = PATIENT
    again = replies(llama, longer)
    assert [reply.ids for reply in alone] == [reply.ids for reply in again]
    assert all(len(reply.ids) == 6 for reply in alone)
    for one, other in zip(alone, again, strict=True):
        assert one.answer_logprob == pytest.approx(other.answer_logprob, abs=0.05)
    assert [tokenizer.decode(reply.ids) for reply in alone] == [reply.text for reply in alone]


def test_llama_cpp_reads_ids_text_and_chat_as_the_same_tokens(
    llama: OpenAIBackend, llama_url: str, tokenizer: Tokenizer
) -> None:
    """The same prompt in three forms: the same count, verified, and the same answer."""
    ids, span = tokenizer.chat("What is the capital of France? Answer with one word.")
    trial = Trial(tuple(ids), tuple(tokenizer.encode("Paris")[:1]), (), span[0], "b", "c", 0, content=span)
    told = {}
    for ask in ("ids", "text", "chat"):
        backend = OpenAIBackend(llama_url, tokenizer=tokenizer, limits=PATIENT, ask=ask)
        (told[ask],) = replies(backend, (trial,))
    assert {reply.prompt_tokens for reply in told.values()} == {len(ids)}
    assert len({reply.ids for reply in told.values()}) == 1
    assert told["ids"].answer_logprob == pytest.approx(told["text"].answer_logprob, abs=0.01)
    assert told["ids"].answer_logprob == pytest.approx(told["chat"].answer_logprob, abs=0.01)


def test_a_prompt_that_llama_cpp_has_no_room_for_is_one_line(llama: OpenAIBackend) -> None:
    """It refuses, rather than to truncate."""
    long = Trial(tuple(range(40, 104)) * 40, (50,), (), 0, "b", "c", 0)
    with pytest.raises(Exception, match=r"refuses: status 400: .*context size") as caught:
        llama.answer([long])
    assert "\n" not in str(caught.value)


def test_vllm_is_asked_by_ids_that_it_echoes(tokenizer: Tokenizer) -> None:
    """Log-probabilities of any token by its id, and of longer answers as part of the prompt."""
    vllm = served("VLLM", tokenizer)
    found = vllm.capabilities.completions
    assert found is not None
    assert (found.token_ids, found.echoes, found.counts, found.by_id) == (True, True, True, True)
    assert found.named >= 32
    assert found.forced == "prompt_logprobs"
    assert vllm.describe()["asked"] == {"ids": "echoed ids"}
    assert vllm.describe()["prefix_cache"] == "off by cache_salt"
    asked = trials(tokenizer)
    for reply in replies(vllm, asked):
        assert reply.candidate_logprobs is not None
        assert len(reply.candidate_logprobs) == 8
    first, *_ = asked
    (greedy,) = replies(vllm, (replace(first, generate=2),))
    (longer,) = replies(vllm, (replace(first, answer_ids=greedy.ids, candidate_ids=()),))
    (single,) = replies(vllm, (replace(first, answer_ids=greedy.ids[:1], candidate_ids=()),))
    assert longer.ids == greedy.ids
    assert longer.answer_logprob is not None
    assert single.answer_logprob is not None
    assert longer.answer_logprob < single.answer_logprob


def test_transformers_serve_is_asked_by_text_and_chat_and_counted(tokenizer: Tokenizer) -> None:
    """It takes no ids and passes over log-probabilities in silence; its counts are right."""
    server = served("TRANSFORMERS", tokenizer)
    assert server.describe()["asked"] == {"chat": "token counts", "text": "token counts"}
    asked = trials(tokenizer)[:2]
    for reply, trial in zip(replies(server, asked), asked, strict=True):
        assert reply.answer_logprob is None
        assert len(reply.ids) == 1
        assert reply.prompt_tokens == len(trial.prompt_ids)
    ids, span = tokenizer.chat("What is the capital of France? Answer with one word.")
    (reply,) = replies(server, (Trial(tuple(ids), (1,), (), span[0], "b", "c", 0, generate=4, content=span),))
    assert reply.text
