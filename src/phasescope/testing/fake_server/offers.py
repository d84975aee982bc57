"""What a fake server can do, and what goes wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "429",
    "429 with a time",
    "500",
    "time-out",
    "cut connection",
    "invalid JSON",
    "missing log-probabilities",
    "wrong token count",
    "slow drip",
    "answer without end",
    "two choices",
    "answer to another request",
    "silently truncated prompt",
    "swapped answers",
    "end alone read",
    "impossible ids",
    "ids left out",
    "impossible log-probability",
    "impossible count",
    "content filter",
]


@dataclass(frozen=True, kw_only=True)
class Offers:
    """What the server can do.

    Attributes:
        token_ids: prompts may be token ids.
        chat, completions: whether the endpoint exists.
        logprobs: their shape: parallel `lists`, `records` with ids, or none.
        names: how lists name tokens: by text, or by `token_id:17` when asked to.
        top: log-probabilities per token at most; more are refused, or (0) there is no bound.
        named: tokens whose log-probabilities can be asked for by id.
        prompt_logprobs, echo: ways to those of the prompt.
        counts: whether answers carry the usage.
        echoes: whether answers carry the prompt's ids on demand.
        tokenize: the field of /tokenize, if there is one.
        caches: how a cached prefix is refused; the cache is there, and reported, if this is not None.
        start: tokens that the server puts in front of texts.
        strict: unknown fields are refused.
        key: what a request must bring as bearer token.
    """

    token_ids: bool = True
    chat: bool = False
    completions: bool = True
    logprobs: Literal["lists", "records"] | None = "lists"
    names: Literal["text", "ids"] = "ids"
    top: int = 20
    named: int = 0
    prompt_logprobs: bool = False
    echo: bool = False
    counts: bool = True
    echoes: bool = False
    tokenize: Literal["prompt", "content"] | None = None
    caches: Literal["cache_prompt", "cache_salt"] | None = None
    start: tuple[int, ...] = ()
    strict: bool = False
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong, for whom and how often.

    Attributes:
        kind: what.
        share: share of the prompts that it befalls, chosen by their hash.
        times: how often each of them, until it is answered; None for always.
        seconds: of a time-out, a drip, or the wait that a 429 names.
        longer_than: it befalls only prompts of more tokens or characters than this.
    """

    kind: Kind
    share: float = 0.3
    times: int | None = 1
    seconds: float = 1.0
    longer_than: int = 0
