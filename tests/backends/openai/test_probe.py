"""What a server can do is found out by what it answers, not by what it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from phasescope import UsageError
from phasescope.backends.openai.capabilities import Capabilities
from phasescope.backends.openai.client import Client, run
from phasescope.backends.openai.probe import probe
from phasescope.errors import ServerError
from phasescope.testing.fake_server import Dialect, FakeServer, Offers
from phasescope.testing.fake_server.model import Hashed
from phasescope.text import tokens

from ..conftest import QUICK, small_tokenizer


def probed(
    server: FakeServer, model: str | None = None, tokenizer: tokens.Tokenizer | None = None
) -> Capabilities:
    """What the probe finds."""

    async def work() -> Capabilities:
        async with Client(server.url, limits=QUICK) as client:
            return await probe(client, model, tokenizer)

    return run(work())


def completions(server: FakeServer, tokenizer: tokens.Tokenizer | None = None) -> dict[str, Any]:
    """What it finds about completions."""
    found = probed(server, tokenizer=tokenizer).completions
    assert found is not None
    return asdict(found)


FULL = Offers(named=128, prompt_logprobs=True, echoes=True, echo=True)


@pytest.mark.parametrize(
    ("offers", "found"),
    [
        (
            FULL,
            {
                "token_ids": True,
                "counts": True,
                "echoes": True,
                "top": 20,
                "named": 128,
                "forced": "prompt_logprobs",
            },
        ),
        (replace(FULL, prompt_logprobs=False), {"forced": "echo"}),
        (replace(FULL, prompt_logprobs=False, echo=False), {"forced": None}),
        (replace(FULL, named=32), {"named": 32}),
        (replace(FULL, named=0), {"named": 0}),
        (Offers(logprobs="records", top=0), {"top": 1000, "by_id": True, "logprobs": True}),
        (Offers(top=5), {"top": 5}),
        (Offers(logprobs=None), {"logprobs": False, "top": 0, "forced": None}),
        (Offers(counts=False), {"counts": False, "token_ids": True}),
        (
            Offers(strict=True),
            {"echoes": False, "named": 0, "forced": None, "temperature": True, "seed": True},
        ),
        (Offers(token_ids=False, logprobs=None), {"token_ids": False}),
    ],
)
def test_an_ability_is_believed_when_an_answer_shows_it(offers: Offers, found: dict[str, Any]) -> None:
    """Unknown fields are passed over by this server, as by most; they prove nothing."""
    with FakeServer(Hashed(500), offers) as server:
        seen = completions(server)
    assert {name: seen[name] for name in found} == found


def test_texts_are_counted_with_the_tokenizer() -> None:
    """The server's BOS is found; without a tokenizer it is only seen that counts move rightly."""
    small = small_tokenizer(start=True)
    with FakeServer(Hashed(9), Offers(token_ids=False, logprobs=None, start=(7,)), small) as server:
        assert {key: completions(server, small)[key] for key in ("counts", "extra")} == {
            "counts": True,
            "extra": 1,
        }
        assert {key: completions(server)[key] for key in ("counts", "extra")} == {
            "counts": True,
            "extra": None,
        }


def test_the_tokens_of_a_chat_template_are_found() -> None:
    """They are the same for every message."""
    small = small_tokenizer()
    with FakeServer(
        Hashed(9), Offers(chat=True, completions=False, logprobs="records", top=20), small
    ) as server:
        found = probed(server, tokenizer=small)
    assert found.completions is None
    assert found.chat is not None
    assert (found.chat.extra, found.chat.counts, found.chat.top, found.chat.token_ids) == (3, True, 20, False)


class Shifted(Dialect):
    """Tells each echoed token's log-probability at its neighbour."""

    def lists(self, tokens: Sequence[int], steps: Any, body: Any) -> Any:
        lists = super().lists(tokens, steps, body)
        if body.get("echo"):
            lists = {name: values[1:] + values[:1] for name, values in lists.items()}
            lists["token_logprobs"] = [-5.0 if value is None else value for value in lists["token_logprobs"]]
        return lists


class OffByOne(FakeServer):
    """A server whose echo is shifted."""

    @property
    def dialect(self) -> Dialect:
        return Shifted(self.offers, self.tokenizer)


def test_an_echo_that_is_off_by_one_is_not_believed() -> None:
    """A token that was just chosen must have the log-probability that it was chosen with."""
    with OffByOne(Hashed(500), replace(FULL, prompt_logprobs=False)) as server:
        assert completions(server)["forced"] is None


class Uneven(FakeServer):
    """A server that counts something else than tokens."""

    def answer(self, path: str, body: Any, fault: Any) -> Any:
        status, told = super().answer(path, body, fault)
        if "usage" in told:
            told["usage"]["prompt_tokens"] = told["usage"]["prompt_tokens"] // 2
        return status, told


def test_counts_that_do_not_move_with_the_prompt_are_not_believed() -> None:
    """Nor are ids taken for accepted that were counted as something else."""
    with Uneven(Hashed(500)) as server:
        found = completions(server)
    assert (found["counts"], found["token_ids"]) == (False, False)


@pytest.mark.parametrize("field", ["prompt", "content"])
def test_the_field_of_tokenize_is_the_one_that_gives_tokens(field: Any) -> None:
    """The wrong field gets an empty list from some servers."""
    with FakeServer(Hashed(500), Offers(tokenize=field)) as server:
        assert probed(server).tokenize == field
    with FakeServer(Hashed(500)) as server:
        assert probed(server).tokenize is None


@pytest.mark.parametrize("offers", [Offers(tokenize="content"), Offers(token_ids=False, logprobs=None)])
def test_a_foreign_tokenizer_is_refused(offers: Offers) -> None:
    """By its ids, or by the number of tokens; every position would be wrong."""
    other = small_tokenizer()
    other.fast.add_tokens(["area", "notes"])
    with (
        FakeServer(Hashed(9), offers, other) as server,
        pytest.raises(UsageError, match="other tokens than the tokenizer"),
    ):
        probed(server, tokenizer=small_tokenizer())


@pytest.mark.parametrize(
    ("lever", "caches", "uncached"),
    [("cache_prompt", True, "cache_prompt"), ("cache_salt", True, "cache_salt"), (None, None, None)],
)
def test_the_field_that_switches_the_prefix_cache_off_is_proven(
    lever: Any, caches: Any, uncached: Any
) -> None:
    """By the tokens that the server then does not take from it."""
    with FakeServer(Hashed(500), Offers(caches=lever)) as server:
        found = probed(server)
    assert (found.caches, found.uncached) == (caches, uncached)


def test_the_model_is_named_unless_there_is_only_one() -> None:
    """The line lists the choice."""
    with FakeServer(Hashed(9), listed=["a/one", "two"]) as server:
        with pytest.raises(UsageError, match=r"lists 2 models \(a/one, two\); name one with --model"):
            probed(server)
        assert probed(server, "two").model == "two"


class Several(FakeServer):
    """A server that answers neither completions nor chats."""

    def answer(self, path: str, body: Any, fault: Any) -> Any:
        return 404, {"error": "no"}


def test_a_server_that_answers_nothing_is_one_line() -> None:
    """With what it said last."""
    with (
        Several(Hashed(9)) as server,
        pytest.raises(ServerError, match="neither completions nor chat: status 404: no"),
    ):
        probed(server)


def test_what_a_restarted_server_may_have_otherwise_is_not_described() -> None:
    """Or a run could not go on with it."""
    with FakeServer(Hashed(9), Offers(caches="cache_prompt")) as server:
        found = probed(server)
    assert found.model == "planted"
    assert {"context", "caches", "model"}.isdisjoint(found.describe())
    assert found.describe() == replace(found, context=5, caches=None).describe()


def test_what_is_printed_names_every_ability_and_no_control_characters() -> None:
    """One line each."""
    with FakeServer(Hashed(9), FULL) as server:
        found = replace(probed(server), server="evil\x1b[2J\n")
    text = "\n".join(f"{ability} {answer}" for ability, answer in found.lines())
    for part in (
        "token ids yes, echoed",
        "rightly yes",
        "of 128 tokens by id",
        "by prompt_logprobs",
        "max_tokens",
    ):
        assert part in text
    assert "\x1b" not in text
