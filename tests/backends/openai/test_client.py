"""Requests: addresses, keys, waits, bounds, and texts that tell no secret."""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate
from typing import Any

import pytest

from phasescope import UsageError
from phasescope.backends.openai import client as openai_client
from phasescope.backends.openai.client import (
    Client,
    Limits,
    RefusedError,
    UnusableError,
    key_from,
    run,
    server_root,
)
from phasescope.errors import ServerError
from phasescope.testing.fake_server import FakeServer, Script
from phasescope.testing.fake_server.model import Hashed

from ..conftest import QUICK


def scripted(script: Script) -> FakeServer:
    """A server that gives the answers of a script, by the number of the request."""
    return FakeServer(Hashed(9), script=script)


def asked(client: Client, times: int = 1, apart: float = 0.0) -> list[Any]:
    """What a client gets for some requests, so many seconds apart."""

    async def one(number: int) -> Any:
        await asyncio.sleep(number * apart)
        return await client.post("/x", {"a": 1}, lambda told: told)

    async def work() -> list[Any]:
        async with client:
            return await asyncio.gather(*map(one, range(times)))

    return run(work())


def ok(_: int) -> tuple[int, dict[str, str], bytes]:
    """All is well."""
    return 200, {}, b'{"well": true}'


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/v1/", "http://localhost:8000"),
        (" https://api.example.com/proxy/v1 ", "https://api.example.com/proxy"),
    ],
)
def test_an_address_is_taken_with_or_without_its_version(given: str, root: str) -> None:
    """Paths such as /v1/models and /tokenize go behind it."""
    assert server_root(given) == root


@pytest.mark.parametrize(
    "given",
    [
        "http://me:hunter2@host/v1",
        "https://host/v1?key=hunter2",
        "http://host/#hunter2",
        "http://hunter2@host",
    ],
)
def test_an_address_with_a_secret_in_it_is_refused_without_repeating_it(given: str) -> None:
    """It would end up in logs and histories."""
    with pytest.raises(UsageError, match="environment") as caught:
        server_root(given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("given", ["", "localhost:8000", "ftp://host", "http://", "http://a:b:c", "/v1"])
def test_what_is_no_address_says_what_one_looks_like(given: str) -> None:
    """One line with an example."""
    with pytest.raises(UsageError, match="such as http://localhost:8000/v1"):
        server_root(given)


def test_the_key_comes_from_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default from OPENAI_API_KEY; a named variable must be there."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert key_from(None) is None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-default\n")
    monkeypatch.setenv("MINE", "sk-mine")
    assert (key_from(None), key_from("MINE")) == ("sk-default", "sk-mine")
    with pytest.raises(UsageError, match="is empty or not set"):
        key_from("NOT_THERE")


@pytest.mark.parametrize(
    ("variable", "content"), [("sk-hunter2", ""), ("MINE", "hunter2\r\nX: y"), ("MINE", "hunter2\u00fc")]
)
def test_a_key_given_wrongly_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, variable: str, content: str
) -> None:
    """Neither where the key itself is given as the name, nor where it has characters that headers cannot hold."""
    monkeypatch.setenv("MINE", content)
    with pytest.raises(UsageError) as caught:
        key_from(variable)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["concurrency", "requests_per_minute", "timeout", "tries", "patience", "deadline"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_are_above_zero(name: str, value: float) -> None:
    """Named as the option is."""
    with pytest.raises(
        UsageError, match=rf"{name} is {value}(\.0)?(; give (at least 1|more than 0)|: .*finite)"
    ):
        Limits.checked(**{name: value})


@pytest.mark.parametrize("wait", ["0.3", "date"])
def test_a_wait_that_the_server_asks_for_is_kept_by_all_requests(wait: str) -> None:
    """In seconds or as a date; requests that were not refused wait as well."""

    def script(number: int) -> tuple[int, dict[str, str], bytes]:
        value = formatdate(time.time() + 1.9, usegmt=True) if wait == "date" else wait
        return (429, {"Retry-After": value}, b"slow down") if number == 1 else ok(number)

    with scripted(script) as server:
        assert asked(Client(server.url, limits=QUICK), 2, apart=0.2) == [{"well": True}] * 2
    assert min(server.times[1:]) - server.times[0] > (0.5 if wait == "date" else 0.29)


def test_a_wait_beyond_all_patience_ends_at_once() -> None:
    """An hour is not waited for; the line says what the server said."""
    with (
        scripted(
            lambda _: (429, {"Retry-After": "3600"}, b'{"error": {"message": "quota used up"}}')
        ) as server,
        pytest.raises(ServerError, match=r"status 429: quota used up; .* when it is well"),
    ):
        asked(Client(server.url, limits=QUICK))
    assert len(server.times) == 1


def test_requests_keep_to_a_rate() -> None:
    """So many per minute, however many are under way."""
    with scripted(ok) as server:
        asked(
            Client(
                server.url, limits=QUICK.model_copy(update={"requests_per_minute": 600, "concurrency": 8})
            ),
            5,
        )
    assert server.times[-1] - server.times[0] > 0.3


def test_a_deadline_ends_everything_in_one_line() -> None:
    """A request whose turn would come too late is not waited for."""
    with scripted(ok) as server:
        client = Client(
            server.url, limits=QUICK.model_copy(update={"requests_per_minute": 30, "deadline": 1.5})
        )
        with pytest.raises(ServerError, match=r"the deadline of 1\.5 s"):
            asked(client, 5, apart=0.1)
    assert len(server.times) == 1


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory."""
    monkeypatch.setattr(openai_client, "LARGEST_BODY", 2**20)
    with (
        scripted(lambda _: (200, {}, b" " * 2**22)) as server,
        pytest.raises(ServerError, match="an answer of more than 1 MiB"),
    ):
        asked(Client(server.url, limits=QUICK.model_copy(update={"tries": 2})))
    assert len(server.times) == 2


@pytest.mark.parametrize(
    "content", [b"<html>", b"", b'{"a": NaN}', b"[" * 100_000, b'{"a": 1} {"a": 1}', b"\xff"]
)
def test_what_is_not_json_is_asked_for_again(content: bytes) -> None:
    """Numbers that are none, depths that break the reader and doubled answers included."""
    with scripted(lambda number: (200, {}, content) if number < 3 else ok(number)) as server:
        assert asked(Client(server.url, limits=QUICK)) == [{"well": True}]
    assert len(server.times) == 3


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "change what is asked"),
        (401, "OPENAI_API_KEY"),
        (403, "--key-env"),
        (404, "phasescope probe"),
        (422, "change what is asked"),
        (301, "redirects"),
    ],
)
def test_a_refusal_is_final_and_says_what_to_do(status: int, said: str) -> None:
    """Asking again would change nothing; a redirect is not followed, as it would take the key elsewhere."""
    headers = {"Location": "http://127.0.0.1:9/"} if status == 301 else {}
    body = json.dumps({"error": {"message": "no\x1b[2J\nsk-hunter2"}}).encode()
    with scripted(lambda _: (status, headers, body)) as server, pytest.raises(ServerError) as caught:
        asked(Client(server.url, key="sk-hunter2", limits=QUICK))
    assert len(server.times) == 1
    line = str(caught.value)
    assert said in line
    assert "the same command goes on from there" in line
    assert "hunter2" not in line
    assert line.isprintable()


def test_nobody_at_the_address_is_one_line() -> None:
    """With what the system says."""
    with scripted(ok) as server:
        pass
    with pytest.raises(ServerError, match=r"does not answer: the connection failed"):
        asked(Client(server.url, limits=QUICK.model_copy(update={"tries": 2})))


def test_an_unusable_answer_is_asked_for_three_times() -> None:
    """Then its reason is told; a failure in between does not count."""

    def read(told: Any) -> None:
        raise UnusableError("useless")

    async def work(client: Client) -> None:
        async with client:
            await client.post("/x", {}, read)

    with (
        scripted(lambda number: (500, {}, b"") if number == 2 else ok(number)) as server,
        pytest.raises(UnusableError, match="useless"),
    ):
        run(work(Client(server.url, limits=QUICK.model_copy(update={"tries": 8}))))
    assert len(server.times) == 4


@pytest.mark.parametrize("status", [400, 500])
def test_an_offer_that_is_refused_or_breaks_is_none(status: int) -> None:
    """A probe goes on to the next question."""

    async def work(client: Client) -> None:
        async with client:
            await client.offer("POST", "/x", {})

    with scripted(lambda _: (status, {}, b"no")) as server, pytest.raises(RefusedError):
        run(work(Client(server.url, limits=QUICK)))


def test_work_runs_inside_a_running_loop_too() -> None:
    """As in a notebook."""

    async def outer() -> list[Any]:
        return asked(Client(server.url, limits=QUICK))

    with scripted(ok) as server:
        assert asyncio.run(outer()) == [{"well": True}]


def test_limits_have_defaults_for_patient_people() -> None:
    """Four requests at a time, ten minutes for one."""
    assert (Limits().concurrency, Limits().timeout, Limits().deadline) == (4, 600.0, None)
