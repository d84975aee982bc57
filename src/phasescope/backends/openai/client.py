"""Requests to an OpenAI-compatible server: bounded, paced, repeated with back-off, and silent about secrets."""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import httpx2
import stamina
from pydantic import Field

from ...errors import ServerError, UsageError
from ...settings import SERVER, Settings, setting

T = TypeVar("T")

LARGEST_BODY = 2**26
"""Bytes of an answer beyond which it is refused; a whole vocabulary's log-probabilities take some 2**24."""

DEFECTS = 3
"""How often a request is asked whose answers arrive whole but cannot be used."""

OFFERS = 4
"""How often something is asked for that a server may not offer."""

RESUME = "finished batches are kept, the same command goes on from there"


class RefusedError(Exception):
    """The server said no: a status of 4xx, which asking again would not change."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status


class UnusableError(Exception):
    """An answer that arrived whole and cannot be used; the text is the reason, in few words."""


class _FailedError(Exception):
    """An attempt that may well succeed later; `wait` is how many seconds the server asks for."""

    def __init__(self, reason: str, *, wait: float | None = None, status: int | None = None) -> None:
        super().__init__(reason)
        self.wait = wait
        self.status = status


def _timeout(seconds: float) -> Any:
    return setting(
        seconds,
        "Seconds until a request must be answered whole, however slowly it drips.",
        panel=SERVER,
        gt=0,
    )


def _tries(times: int) -> Any:
    return setting(times, "How often a request is sent before it counts as failed.", panel=SERVER, ge=1)


class Limits(Settings):
    """How fast a server is asked, and for how long it is waited for; `checked` refuses what is not above 0.

    Attributes:
        patience: seconds for all tries of one request; never less than two of them could take.
        first_wait: seconds before the first repetition; each further wait is twice as long, and jittered.
        longest_wait: seconds that a wait may last, unless the server asks for more.
    """

    concurrency: int = setting(4, "Requests under way at a time.", panel=SERVER, ge=1, le=1024)
    requests_per_minute: float | None = setting(
        None, "Requests begun per minute at most, repetitions included.", panel=SERVER, gt=0
    )
    timeout: float = _timeout(600.0)
    tries: int = _tries(8)
    deadline: float | None = setting(
        None,
        "Seconds after which nothing more is asked, and the run stops, to be resumed.",
        panel=SERVER,
        gt=0,
    )
    patience: float = Field(default_factory=lambda given: max(900.0, 2 * given.get("timeout", 0.0)), gt=0)
    first_wait: float = Field(0.5, gt=0)
    longest_wait: float = Field(60.0, gt=0)


class ProbeLimits(Limits):
    """The limits of a short look at a server: one request at a time, given up soon."""

    concurrency: int = 1
    timeout: float = _timeout(60.0)
    tries: int = _tries(3)
    deadline: float | None = None


class Client:
    """Asks one server, within limits; every text that it raises is one line without the key.

    Use it as an asynchronous context manager; it can be entered again, in another event loop too.

    Args:
        base_url: where the server is, with or without /v1.
        key: sent as bearer token and shown nowhere.
        limits: how fast, and for how long.
        advice: what is said of going on later when the server fails.

    Attributes:
        requests, repeated: how many requests went out so far, and how many of them again.
        names: the ids of answers so far, with what each of them answered.

    Raises:
        UsageError: if the address is none, or holds a user, a password or a query.
    """

    def __init__(
        self, base_url: str, *, key: str | None = None, limits: Limits | None = None, advice: str = RESUME
    ) -> None:
        self.limits = limits or Limits()
        self.advice = advice
        self.root = server_root(base_url)
        self.host = httpx2.URL(self.root).netloc.decode()
        self.requests = 0
        self.repeated = 0
        self.names: dict[str, str] = {}
        self._key = key
        self._slot = 0.0
        self._born = time.monotonic()

    async def __aenter__(self) -> Self:
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=self.limits.timeout,
            limits=httpx2.Limits(max_connections=self.limits.concurrency),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """Send until the answer can be used.

        Args:
            path: below the server's root.
            body: what is sent as JSON.
            read: makes something of the answer, or raises `UnusableError`.

        Raises:
            UnusableError: if the server keeps giving answers that `read` cannot use.
            ServerError: if it refuses the request, or does not answer in all tries.
        """
        try:
            return await self._repeat("POST", path, body, read, self.limits.tries)
        except RefusedError as error:
            raise ServerError(self._refusal(error)) from None
        except _FailedError as error:
            raise self._lost(error) from None

    async def offer(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """As `post`, for what a server may not offer: few tries, and a refusal says that it does not.

        Raises:
            RefusedError: if the server refuses, or breaks at this request every time.
            ServerError: if it cannot be reached, or the key is not good.
        """
        try:
            return await self._repeat(method, path, body, lambda answer: answer, OFFERS)
        except RefusedError as error:
            if error.status in (401, 403):
                raise ServerError(self._refusal(error)) from None
            raise
        except _FailedError as error:
            if error.status in (500, 501):
                raise RefusedError(error.status, str(error)) from None
            raise self._lost(error) from None

    async def _repeat(
        self, method: str, path: str, body: dict[str, Any] | None, read: Callable[[Any], T], tries: int
    ) -> T:
        attempts = stamina.retry_context(
            on=self._waits(),
            attempts=tries,
            timeout=self.limits.patience,
            wait_initial=self.limits.first_wait,
            wait_max=self.limits.longest_wait,
            wait_jitter=self.limits.first_wait,
        )
        async for attempt in attempts:
            self.repeated += attempt.num > 1
            with attempt:
                return read(await self._once(method, path, body))
        raise AssertionError("stamina gives one attempt or raises")

    def _waits(self) -> Callable[[Exception], bool | float]:
        """For one request: whether an error is worth another try, or after how many seconds."""
        ends, defects = time.monotonic() + self.limits.patience, 0

        def again(error: Exception) -> bool | float:
            nonlocal defects
            if isinstance(error, UnusableError):
                defects += 1
                return defects < DEFECTS
            if not isinstance(error, _FailedError):
                return False
            if error.wait is None:
                return True
            now = time.monotonic()
            if now + error.wait >= ends:
                return False
            self._slot = max(self._slot, now + error.wait)
            return error.wait + random.uniform(0, self.limits.first_wait)

        return again

    async def _once(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """One exchange: the decoded JSON, or the error that tells what to do."""
        await self._turn()
        self.requests += 1
        try:
            async with asyncio.timeout(min(self.limits.timeout, self._left())):
                status, wait, content = await self._exchange(method, path, body)
        except (TimeoutError, httpx2.TimeoutException):
            raise _FailedError(f"no whole answer within {self.limits.timeout:g} s") from None
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise _FailedError(
                f"the connection failed ({self._line(str(error) or type(error).__name__)})"
            ) from None
        if status >= 500 or status in (408, 425, 429):
            raise _FailedError(f"status {status}: {self._line(_message(content))}", wait=wait, status=status)
        if status >= 300:
            raise RefusedError(status, self._line(_message(content)))
        try:
            return json.loads(content, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise _FailedError("the answer is not JSON") from None

    async def _exchange(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[int, float | None, bytes]:
        """Send once: status, the wait that the server asks for, and the body, read up to a bound."""
        async with self._http.stream(method, self.root + path, json=body) as response:
            content = bytearray()
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LARGEST_BODY:
                    raise _FailedError(f"an answer of more than {LARGEST_BODY >> 20} MiB")
            return response.status_code, _retry_after(response.headers.get("retry-after")), bytes(content)

    async def _turn(self) -> None:
        """Wait until one more request may begin."""
        pace = 60 / self.limits.requests_per_minute if self.limits.requests_per_minute else 0.0
        now = time.monotonic()
        begin = max(now, self._slot)
        self._slot = begin + pace
        if begin - now >= self._left():
            raise ServerError(
                f"the deadline of {self.limits.deadline:g} s has passed; {self.advice}, with a new deadline"
            )
        await asyncio.sleep(begin - now)

    def _left(self) -> float:
        """Seconds until the deadline of everything."""
        return (
            float("inf")
            if self.limits.deadline is None
            else self._born + self.limits.deadline - time.monotonic()
        )

    def _lost(self, error: _FailedError) -> ServerError:
        """A server that was given up, as one line that says what to do."""
        return ServerError(f"{self.host} does not answer: {error}; {self.advice} when it is well")

    def _refusal(self, error: RefusedError) -> str:
        """A refusal as one line that says what to do."""
        cure = "change what is asked"
        if error.status in (401, 403):
            cure = "put the key into OPENAI_API_KEY, or into the variable that --key-env names"
        elif error.status < 400:
            cure = "give the address that it redirects to"
        elif error.status == 404:
            cure = "check address and model name with `phasescope probe`"
        return f"{self.host} refuses: {error}; {cure}; {self.advice}"

    def _line(self, text: str) -> str:
        """What a server wrote, as one short printable line without the key."""
        shown = text.replace(self._key, "(key)") if self._key else text
        shown = "".join(c if c.isprintable() else " " for c in shown)
        return " ".join(shown.split())[:300]


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run asynchronous work from plain code, also from inside a running event loop such as a notebook's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def server_root(base_url: str) -> str:
    """The address without a final /v1: what paths such as /v1/models and /tokenize are added to.

    Raises:
        UsageError: if it is no address, or holds what belongs nowhere near a log; it is not repeated then.
    """
    try:
        url = httpx2.URL(base_url.strip())
    except httpx2.InvalidURL:
        raise UsageError("the base URL is no address; give one such as http://localhost:8000/v1") from None
    if url.userinfo or url.query or url.fragment:
        raise UsageError(
            "the base URL holds a user, a password or a query; give the plain address, and the key in an "
            "environment variable"
        )
    if url.scheme not in ("http", "https") or not re.fullmatch(r"[\w.:%-]+", url.host):
        raise UsageError(f"base URL {base_url!r}: give an address such as http://localhost:8000/v1")
    return str(url).rstrip("/").removesuffix("/v1").rstrip("/")


def key_from(variable: str | None) -> str | None:
    """The key that an environment variable holds; by default OPENAI_API_KEY, if it is set.

    Raises:
        UsageError: if a named variable is not set, or its content cannot be a key; neither is repeated.
    """
    if variable is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise UsageError("--key-env takes the name of an environment variable, not a key")
    key = os.environ.get(variable or "OPENAI_API_KEY", "").strip()
    if variable is not None and not key:
        raise UsageError("the environment variable that --key-env names is empty or not set; export it first")
    if not re.fullmatch(r"[!-~]*", key):
        raise UsageError("the key in the environment has characters that no key has; export it again")
    return key or None


def _retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, which is a number or a date."""
    try:
        seconds = float(value or "")
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value or "").timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _message(content: bytes) -> str:
    """What an error's body says, in any of the shapes that servers give it."""
    text = content[:10_000].decode(errors="replace")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for name in ("error", "detail", "message"):
        message = message.get(name, message) if isinstance(message, dict) else message
    return message if isinstance(message, str) else json.dumps(message)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
