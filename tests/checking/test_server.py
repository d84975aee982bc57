"""A server as a engine, over a transport of a few lines and over HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from phasescope import UsageError
from phasescope.checking import check
from phasescope.checking.server import Completion, HttpTransport, ServerEngine
from phasescope.checking.serving import check_server

from .toy import Toy

IDS = tuple(range(40))


class Transport:
    """A toy engine behind requests, with a prefix cache and faults on demand."""

    def __init__(
        self, *, control: str | None = "cache_salt", echoes: bool = True, fault: str = "", tied: bool = False
    ) -> None:
        self.name, self.control, self.context, self.echoes = "toy", control, 512, echoes
        self.engine, self.fault = Toy(tied=tied), fault
        self.kept: dict[Any, tuple[int, ...]] = {}

    def complete(self, prompts, new, *, fields, echo=False):
        return [self._one(prompt, new, fields, echo, len(prompts)) for prompt in prompts]

    def _one(self, prompt, new, fields, echo, together):
        said = prompt
        salt = fields.get("cache_salt", "")
        kept = self.kept.get(salt, ())
        shared = next((i for i, (a, b) in enumerate(zip(kept, prompt, strict=False)) if a != b), 0)
        self.kept[salt] = prompt
        if self.fault == "hits" and shared:
            hit = min(-(-shared // 16) * 16, len(kept), len(prompt) - 1)
            said = kept[:hit] + prompt[hit:]
        if self.fault == "batch" and together > 1 and len(prompt) > 20:
            said = prompt[1:]
        if self.fault == "decode":
            return self._decoded_wrongly(prompt, new)
        reading = self.engine.go_on(said, new)
        rows = None
        if echo:
            inside = [self._row(one.rows[0]) for one in self.engine.inside(prompt, 0)]
            rows = ({}, *inside[:-1])
        return Completion(
            tuple(map(self._row, reading.rows)), tuple(map(str, reading.tokens)), reading.tokens, rows
        )

    def _decoded_wrongly(self, prompt, new):
        first = self.engine.go_on(prompt, 1)
        later = self.engine.go_on(prompt[1:] + first.tokens, new - 1)
        rows = tuple(map(self._row, first.rows + later.rows))
        return Completion(rows, tuple(map(str, first.tokens + later.tokens)), first.tokens + later.tokens)

    def _row(self, row):
        return {str(token): float(row[token]) for token in np.argsort(row)[-20:]}


def verdict(transport: Transport, **more):
    engine = ServerEngine(transport, ids=IDS, **{"dtype": "float32", "speculates": False, **more})
    return check(engine, strides=[4, 16], sweep=20, longest=90, sizes=16)


def states(found) -> dict[str, str]:
    return {row.feature: row.state for row in found.rows}


def test_a_clean_server_holds_in_what_requests_can_bring_about() -> None:
    """Repeats, echo, decoding, prefix cache, concurrent requests; the rest no request can reach."""
    found = states(verdict(Transport()))
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
    found = verdict(Transport(control=None, echoes=False), speculates=None)
    assert states(found)["prefix"] == states(found)["prefill"] == "hidden"
    assert found.decision == "not decidable with this access"
    assert "cache_salt" in found.sentence
    assert "--no-drafts" in found.sentence


def test_rounded_prefix_hits_are_found() -> None:
    """With the block's size."""
    (row,) = verdict(Transport(fault="hits")).faults
    assert row.feature == "prefix"
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.stride) == ("cut", 16)


def test_a_fault_of_concurrent_requests_is_found() -> None:
    """From 21 tokens on."""
    (row,) = verdict(Transport(fault="batch")).faults
    assert row.feature == "batch"
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.least) == ("length", 21)


def test_decoding_that_differs_from_prefill_is_found() -> None:
    """On a model that is known to choose nothing by scores."""
    found = verdict(Transport(fault="decode"), selects=False)
    assert "decode" in {row.feature for row in found.faults}


def test_equal_scores_behind_a_server_accuse_nobody() -> None:
    """They cannot be seen there: undecided, with what would decide."""
    found = verdict(Transport(tied=True))
    assert not found.faults
    assert "--no-selection" in found.sentence


def test_an_unknown_number_format_is_refused() -> None:
    """With the known ones."""
    with pytest.raises(UsageError, match="bfloat16"):
        ServerEngine(Transport(), dtype="fp7")


class Handler(BaseHTTPRequestHandler):
    """A toy engine that speaks as vLLM does."""

    engine = Toy()
    shape = "lists"

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "toy", "owned_by": "vllm", "max_model_len": 256}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = tuple(token - 40 for token in body["prompt"])
        reading = type(self).engine.go_on(tuple(token % 40 for token in prompt), body["max_tokens"])
        tops = [{f"token_id:{t + 40}": float(row[t]) for t in np.argsort(row)[-20:]} for row in reading.rows]
        tokens = [f"token_id:{token + 40}" for token in reading.tokens]
        logprobs: Any = {"tokens": tokens, "top_logprobs": tops}
        if self.shape == "none":
            logprobs = None
        self.reply({"choices": [{"text": "", "logprobs": logprobs}]})

    def reply(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_is_checked_over_http(address: str) -> None:
    """Ids of tokens, lists of the most probable ones, and a context that bounds the prompts."""
    settings = {"run": None, "condition": None, "report": lambda *_: None}
    found = check_server(
        f"{address}/v1", strides=[4], features=["decode", "batch"], sizes=4, longest=24, **settings
    )
    assert not found.faults
    assert states(found) == {"repeat": "holds", "decode": "holds", "batch": "holds"}
    assert found.facts["cache_control"] == "cache_salt"


def test_a_server_without_log_probabilities_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line."""
    monkeypatch.setattr(Handler, "shape", "none")
    with pytest.raises(UsageError, match="no log-probabilities"):
        ServerEngine(HttpTransport(address)).whole((40, 41), 1)


@pytest.mark.parametrize(
    ("url", "said"), [("ftp://x", "no address"), ("http://127.0.0.1:9", "no OpenAI-compatible server")]
)
def test_what_is_no_server_is_refused(url: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, without waiting long."""
    monkeypatch.setattr("phasescope.checking.server.ATTEMPTS", 1)
    with pytest.raises(UsageError, match=said):
        check_server(url, strides=[], run=None, condition=None, report=lambda *_: None)


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    """A verdict is kept in logs of a CI."""
    with pytest.raises(UsageError, match="holds a user, a password") as refused:
        check_server(
            "http://me:hunter2@127.0.0.1:9", strides=[], run=None, condition=None, report=lambda *_: None
        )
    assert "hunter2" not in str(refused.value)
