"""What an OpenAI-compatible server can do, and the requests that it accepts for that reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["completions", "chat"]
Forced = Literal["echo", "prompt_logprobs"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What one of the two endpoints offers.

    Attributes:
        kind: `completions` or `chat`.
        length: the name of the field that bounds the answer.
        temperature, seed: whether the field is accepted.
        token_ids: whether a prompt may be token ids.
        counts: whether `usage.prompt_tokens` moves by exactly the tokens that a prompt is longer by.
        extra: tokens that the server puts around a text: a BOS, or a chat template; null where not known.
        echoes: whether the ids of the prompt come back on demand.
        logprobs: whether the answer's tokens have log-probabilities.
        by_id: whether those name tokens by id; else by text.
        top: log-probabilities per token at most.
        named: tokens whose log-probabilities can be asked for by id, at most.
        forced: how the log-probabilities of the prompt's own tokens are had: `echo`, `prompt_logprobs`, or not.
        unique: whether answers have ids of their own.
        exact: whether an answer has exactly as many log-probabilities per token as were asked for.
    """

    kind: Kind
    length: str = "max_tokens"
    temperature: bool = False
    seed: bool = False
    token_ids: bool = False
    counts: bool = False
    extra: int | None = None
    echoes: bool = False
    logprobs: bool = False
    by_id: bool = False
    top: int = 0
    named: int = 0
    forced: Forced | None = None
    unique: bool = False
    exact: bool = False

    @property
    def path(self) -> str:
        """Below the server's root."""
        return "/v1/chat/completions" if self.kind == "chat" else "/v1/completions"

    def body(self, prompt: str | Sequence[int], tokens: int, **fields: Any) -> dict[str, Any]:
        """A greedy request, as this endpoint accepts it; without the model's name."""
        asked = [{"role": "user", "content": prompt}] if self.kind == "chat" else prompt
        body = {"messages" if self.kind == "chat" else "prompt": asked, self.length: tokens, **fields}
        return body | ({"temperature": 0} if self.temperature else {}) | ({"seed": 0} if self.seed else {})

    def logprob_fields(self, top: int) -> dict[str, Any]:
        """The fields that ask for that many log-probabilities per token."""
        asked = {"logprobs": True, "top_logprobs": top} if self.kind == "chat" else {"logprobs": top}
        return asked | ({"return_tokens_as_token_ids": True} if self.by_id and self.echoes else {})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server can do; part of a run's description, so that a resumed run finds the same server.

    Attributes:
        server: what the model list says owns the model: `llamacpp`, `vllm`, …; null where it says nothing.
        model: the model's name as requests give it.
        context: tokens that prompt and answer may have together, where the server tells; not described.
        completions, chat: the endpoints, where they exist.
        tokenize: the field of a /tokenize endpoint that takes the text, where there is one.
        caches: whether a prompt that was just read is read from a cache; null where the server does not tell.
        uncached: the field that switches that off for one request.
    """

    server: str | None
    model: str
    context: int | None
    completions: Endpoint | None = None
    chat: Endpoint | None = None
    tokenize: Literal["prompt", "content"] | None = None
    caches: bool | None = None
    uncached: Literal["cache_prompt", "cache_salt"] | None = None

    def describe(self) -> dict[str, Any]:
        """JSON values, without what a restarted server may have otherwise."""
        passing = ("model", "context", "caches")
        found = {name: value for name, value in asdict(self).items() if name not in passing}
        for kind in ("completions", "chat"):
            if found[kind] is not None:
                del found[kind]["exact"]  # answers do not depend on it
        return found

    def cache_state(self, *, warm: bool) -> str:
        """What is done about the server's prefix cache."""
        if warm:
            return "kept warm"
        return f"off by {self.uncached}" if self.uncached else "not controlled"

    def lines(self) -> list[tuple[str, str]]:
        """What a terminal prints: ability and answer."""
        cache = {None: "not told", True: "reads cached prefixes", False: "caches nothing"}[self.caches]
        return [
            ("server", printable(self.server or "unknown")),
            ("model", printable(self.model)),
            ("context", f"{self.context:,} tokens" if self.context else "not told"),
            *_endpoint_lines("/v1/completions", self.completions),
            *_endpoint_lines("/v1/chat/completions", self.chat),
            ("/tokenize", f"yes, of {self.tokenize!r}" if self.tokenize else "no"),
            (
                "prefix cache",
                f"{cache}; " + (f"off by {self.uncached}" if self.uncached else "cannot be switched off"),
            ),
        ]


def tokenize_body(model: str, field: str, text: str) -> dict[str, Any]:
    """A request to /tokenize that adds no tokens of its own, in the words of vLLM and of llama.cpp."""
    return {"model": model, field: text, "add_special_tokens": False, "add_special": False}


def prompt_logprob_fields(endpoint: Endpoint, way: Forced | None, top: int = 0) -> dict[str, Any]:
    """The fields that ask for the log-probabilities of the prompt's own tokens, and of the likeliest beside them."""
    asked = endpoint.logprob_fields(max(1, top))
    if way == "prompt_logprobs":
        return {"prompt_logprobs": top, **(asked if top else {})}
    return {"echo": True, **asked}


def _endpoint_lines(path: str, endpoint: Endpoint | None) -> list[tuple[str, str]]:
    if endpoint is None:
        return [(path, "no")]
    logprobs = "no"
    if endpoint.logprobs:
        logprobs = f"{endpoint.top:,} per token, named by {'id' if endpoint.by_id else 'text'}"
        logprobs += f"; of {endpoint.named} tokens by id" if endpoint.named else ""
        logprobs += f"; of the prompt by {endpoint.forced}" if endpoint.forced else ""
    fields = [name for name in ("temperature", "seed") if getattr(endpoint, name)]
    return [
        (path, "yes"),
        (
            "  prompt as token ids",
            ("yes" if endpoint.token_ids else "no") + (", echoed" if endpoint.echoes else ""),
        ),
        ("  counts prompt tokens rightly", "yes" if endpoint.counts else "no"),
        ("  tokens around a text", "not known" if endpoint.extra is None else str(endpoint.extra)),
        ("  log-probabilities", logprobs),
        ("  accepts", ", ".join([*fields, endpoint.length])),
    ]


def printable(text: str) -> str:
    """A server's text for a terminal, without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)
