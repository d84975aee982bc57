"""A fake server over HTTP: one that counts its requests, remembers prefixes and breaks on demand."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from ...text.tokens import Tokenizer
from .dialect import Dialect, Json, Step, top_of
from .model import FakeModel
from .offers import Fault, Kind, Offers

Script = Callable[[int], tuple[int, dict[str, str], bytes]]
KEPT_PREFIXES = 8
END = 20
"""Tokens that a server reads which reads the end of its prompts alone."""
FIELDS = {"model", "prompt", "messages", "max_tokens", "temperature", "seed", "logprobs", "top_logprobs"}
"""What a strict server knows."""


@dataclass
class FakeServer:
    """Serves a model on a port of this machine, as a context manager.

    Attributes:
        model: what answers.
        offers: what the server can do.
        tokenizer: needed for texts, and for names by text.
        fault: what goes wrong; may be exchanged while it runs.
        script: gives status, headers and body by the number of the request, instead of the model.
        listed: names in the model list.
        asked: path and body of every request so far.
        times: when each of them came, by the monotonic clock.
        under_way: how many requests were under way at most at the same time.
    """

    model: FakeModel
    offers: Offers = field(default_factory=Offers)
    tokenizer: Tokenizer | None = None
    fault: Fault | None = None
    script: Script | None = None
    listed: list[str] = field(default_factory=lambda: ["planted"])
    asked: list[tuple[str, Json]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    under_way: int = 0

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._befallen: Counter[str] = Counter()
        self._prefixes: deque[tuple[Any, tuple[int, ...]]] = deque(maxlen=KEPT_PREFIXES)
        self._last: Json = {}
        self._waiting: dict[str, Any] | None = None
        self._numbers = itertools.count()
        self._now = 0
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    @property
    def dialect(self) -> Dialect:
        """How prompts are read and log-probabilities written."""
        return Dialect(self.offers, self.tokenizer)

    def enter(self, path: str, body: Json) -> None:
        """Count a request in."""
        with self._lock:
            self.asked.append((path, body))
            self.times.append(time.monotonic())
            self._now += 1
            self.under_way = max(self.under_way, self._now)

    def leave(self) -> None:
        """Count a request out."""
        with self._lock:
            self._now -= 1

    def befalls(self, body: Json) -> Fault | None:
        """Whether this request goes wrong."""
        prompt = body.get("prompt") or body.get("messages") or ""
        if self.fault is None or len(prompt) <= self.fault.longer_than:
            return None
        name = blake2b(repr(prompt).encode(), digest_size=8).hexdigest()
        with self._lock:
            self._befallen[name] += 1
            again = self.fault.times is None or self._befallen[name] <= self.fault.times
        return self.fault if again and int(name, 16) / 2**64 < self.fault.share else None

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than the server lives."""
        self._stopped.wait(seconds)

    @property
    def stopped(self) -> bool:
        """Whether the server has been taken down."""
        return self._stopped.is_set()

    def content(self, body: Json) -> bytes:
        """The bytes of a reply."""
        return json.dumps(body).encode()

    def answer(self, path: str, body: Json, fault: Kind | None) -> tuple[int, Json]:
        """Status and body of an answer."""
        if path == "/tokenize" and self.offers.tokenize:
            text = body.get(self.offers.tokenize)
            return 200, {"tokens": self.dialect.encode(text) if isinstance(text, str) else []}
        endpoints = {"/v1/completions": self.offers.completions, "/v1/chat/completions": self.offers.chat}
        if not endpoints.get(path):
            return 404, {"error": {"message": "File Not Found"}}
        if self.offers.strict and body.keys() - FIELDS:
            return 422, {"detail": f"Unexpected fields in the request: {sorted(body.keys() - FIELDS)}"}
        ids = self.dialect.prompt(body)
        if ids is None:
            return 400, {"detail": "prompt must be a string."}
        if fault == "silently truncated prompt":
            ids = ids[len(ids) // 3 :]
        top, most = top_of(body), self.offers.top
        if self.offers.logprobs and most and (top or 0) > most:
            return 400, {"error": {"message": f"logprobs {top} is greater than max allowed {most}"}}
        if fault == "swapped answers":
            with self._lock:
                answered = self._whole(ids, body, fault)
            return 200, self._swapped(answered)
        with self._lock:
            answered = self._whole(ids, body, fault)
            if fault == "answer to another request" and self._last:
                return 200, self._last
            self._last = answered
        return 200, answered

    def _swapped(self, own: Json) -> Json:
        """The answer of another request that is under way, which gets this one; its own where there is none."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
            if waiting is None:
                mine: dict[str, Any] = {"met": threading.Event(), "answer": own, "other": own}
                self._waiting = mine
            else:
                waiting["other"] = own
                waiting["met"].set()
                return dict(waiting["answer"])
        mine["met"].wait(0.1)
        with self._lock:
            if self._waiting is mine:
                self._waiting = None
        return dict(mine["other"])

    def _whole(self, ids: tuple[int, ...], body: Json, fault: Kind | None) -> Json:
        """The whole answer: text, log-probabilities, usage and echoes."""
        steps, read = [], list(ids[-END:] if fault == "end alone read" else ids)
        begun = len(read)
        for _ in range(body.get("max_tokens", 16)):
            steps.append(self.model.next_token(read))
            read.append(max(steps[-1], key=lambda token: steps[-1][token]))
        generated = read[begun:]
        cached = self._cached(ids, body)
        text = self.dialect.decode(generated)
        choice: Json = {"index": 0, "finish_reason": "length"}
        choice |= (
            {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        )
        if self.offers.logprobs and top_of(body) is not None and fault != "missing log-probabilities":
            choice["logprobs"] = self._logprobs(ids, generated, steps, body)
        if "prompt_logprobs" in body and self.offers.prompt_logprobs:
            choice["prompt_logprobs"] = self._prompt_logprobs(ids, body["prompt_logprobs"])
        if self.offers.echoes and body.get("return_token_ids"):
            choice |= {"token_ids": generated, "prompt_token_ids": list(ids)}
        _spoil(choice, fault)
        answer: Json = {"id": f"cmpl-{next(self._numbers)}", "object": "text_completion"}
        answer["choices"] = [choice, choice] if fault == "two choices" else [choice]
        if self.offers.counts:
            count = 10**30 if fault == "impossible count" else len(ids) + (fault == "wrong token count")
            answer["usage"] = {"prompt_tokens": count, "completion_tokens": len(generated)}
            if self.offers.caches:
                answer["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
        return answer

    def _logprobs(self, ids: tuple[int, ...], generated: list[int], steps: list[Step], body: Json) -> Json:
        """Log-probabilities of the generated tokens, behind those of the prompt where they are to be echoed."""
        if not (body.get("echo") and self.offers.echo):
            return self.dialect.logprobs(generated, steps, body)
        echoed = [self.model.next_token(ids[:end]) for end in range(len(ids))]
        found = self.dialect.lists([*ids, *generated], [*echoed, *steps], body)
        found["token_logprobs"][0] = None
        return found

    def _prompt_logprobs(self, ids: tuple[int, ...], top: int) -> list[Json | None]:
        """Of each token of the prompt but the first, and of the likeliest ones at its place."""
        ranked = []
        for end in range(1, len(ids)):
            found = self.dialect.likeliest(self.model.next_token(ids[:end]), top, ids[end : end + 1])
            ranked.append({str(token): {"logprob": logprob} for token, logprob in found})
        return [None, *ranked]

    def _cached(self, ids: tuple[int, ...], body: Json) -> int:
        """How many tokens of the prompt a kept one begins with, at most all but the last."""
        space = body.get("cache_salt") if self.offers.caches == "cache_salt" else None
        if self.offers.caches == "cache_prompt" and body.get("cache_prompt") is False:
            return 0
        found = max((_common(ids, kept) for name, kept in self._prefixes if name == space), default=0)
        self._prefixes.append((space, ids))
        return min(found, len(ids) - 1)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet, or each answer waits for an acknowledgement
    fake: FakeServer

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """The model list."""
        if self._authorized():
            models = [{"id": name, "owned_by": "phasescope"} for name in self.fake.listed]
            self._send(200, {"object": "list", "data": models})

    def do_POST(self) -> None:
        """Everything else, with its fault."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._authorized():
            return
        self.fake.enter(self.path, body)
        try:
            if self.fake.script is not None:
                status, headers, content = self.fake.script(len(self.fake.asked))
                self._raw(content, status=status, headers=headers)
                return
            fault = self.fake.befalls(body)
            if fault is None or not self._break(fault):
                self._send(*self.fake.answer(self.path, body, None if fault is None else fault.kind))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            self.fake.leave()

    def _authorized(self) -> bool:
        wanted = self.fake.offers.key
        if wanted is None or self.headers.get("Authorization") == f"Bearer {wanted}":
            return True
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self._send(401, {"error": {"message": f"Incorrect API key provided: {given}"}})
        return False

    def _break(self, fault: Fault) -> bool:
        """Whether the fault leaves no answer to be given."""
        slow = {"error": {"message": "slow down"}}
        match fault.kind:
            case "429":
                self._send(429, slow)
            case "429 with a time":
                self._send(429, slow, {"Retry-After": f"{fault.seconds:g}"})
            case "500":
                self._send(500, {"error": {"message": "out of luck"}})
            case "time-out":
                self.fake.pause(fault.seconds)
                self.close_connection = True
            case "cut connection":
                self._raw(b'{"choices": [', length=1000)
                self.close_connection = True
            case "invalid JSON":
                self._raw(b'{"choices": [{]}')
            case "slow drip":
                self._drip(fault.seconds)
            case "answer without end":
                self._raw(b"[", length=2**62)
                while not self.fake.stopped:
                    self.wfile.write(b"0," * 2**19)
            case _:
                return False
        return True

    def _drip(self, seconds: float) -> None:
        """A body that arrives byte by byte, so that no single wait is long."""
        content = b'{"choices": []}'
        self._raw(b"", length=len(content))
        for byte in content:
            self.fake.pause(seconds / len(content))
            self.wfile.write(bytes([byte]))
            self.wfile.flush()

    def _send(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        self._raw(self.fake.content(body), status=status, headers=headers)

    def _raw(
        self,
        content: bytes,
        *,
        status: int = 200,
        length: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


def _spoil(choice: Json, fault: Kind | None) -> None:
    """Put into an answer what cannot be."""
    logprobs = choice.get("logprobs") or {}
    match fault:
        case "impossible ids":
            choice["token_ids"] = [-5, 10**9]
            for record in logprobs.get("content", []):
                record["id"] = 10**9
        case "ids left out":
            choice["token_ids"] = []
        case "impossible log-probability":
            for record in logprobs.get("content", []):
                record["logprob"] = -1e308
            logprobs |= {"token_logprobs": [-1e308]} if "token_logprobs" in logprobs else {}
        case "content filter":
            choice["finish_reason"] = "content_filter"


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Length of the longest common prefix."""
    return next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
