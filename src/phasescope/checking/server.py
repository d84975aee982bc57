"""An OpenAI-compatible server as an engine under test: what can be asked of an engine through requests alone.

Each request carries token ids and reads the most probable tokens of every step. A way of reading that no
request can bring about is not offered, with what would decide it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal

from ..backends.openai.client import Client, Limits, UnusableError, key_from
from ..backends.openai.completions import Completions
from ..backends.openai.probe import probe
from ..backends.openai.replies import Answer, Position
from ..errors import ServerError, UsageError
from ..text.tokens import Tokenizer
from .engine import Continuation, EngineUnderTest, Ids, NotOfferedError

IDS = tuple(range(40, 104))  # single bytes and short pieces in every byte-level vocabulary
TOP = 20
ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ADVICE = "nothing of a check is kept, start it again"
NOT_IN_PARTS = "a request cannot cut its prompt; the row `prefix` does"
NOT_STEPS = "a server decodes its own tokens only; the row `decode` does"
NOT_PREFIX = "needs a prefix cache that a request can avoid (vLLM: cache_salt; llama.cpp: cache_prompt)"
DRAFTS_HIDDEN = (
    "whether the server decodes with drafts is not visible; start it without them and say --no-drafts"
)


class ServerEngine(EngineUnderTest):
    """An engine behind requests.

    Args:
        completions: how it is asked.
        wait: runs a request and waits for its answer.
        dtype: its coarsest number format, as far as is known; the tolerance follows from it.
        ids: token ids that prompts are made of.
        selects: whether its model chooses entries or experts by scores; None if that is not known.
        speculates: False for an engine that is known to decode without drafts.

    Raises:
        UsageError: if the server takes no token ids, or gives no log-probabilities.
    """

    def __init__(
        self,
        completions: Completions,
        wait: Callable[[Coroutine[Any, Any, Any]], Any],
        *,
        dtype: str = "bfloat16",
        ids: Ids = IDS,
        selects: bool | None = None,
        speculates: bool | None = None,
    ) -> None:
        require_rounding(dtype)
        found = completions.capabilities
        if found.completions is None or not found.completions.token_ids:
            raise UsageError(f"{found.model} takes no prompts of token ids; the check needs them")
        if not found.completions.logprobs:
            raise UsageError(f"{found.model} gives no log-probabilities of its tokens; the check needs them")
        self.completions, self.endpoint, self._wait = completions, found.completions, wait
        self.name, self.dtype = found.model, dtype
        self.ids, self.selects, self.speculates = ids, selects, speculates
        self.eps = ROUNDING[dtype]
        self.longest = found.context or 4096

    def facts(self) -> dict[str, Any]:
        """What was asked, and how."""
        return {
            "subject": self.name,
            "access": "server",
            "dtype": self.dtype,
            "cache_control": self.completions.capabilities.uncached,
        }

    def whole(self, prompt: Ids, new: int) -> Continuation:
        """One request, kept away from the prefix cache where the server lets a request do that."""
        return self._ask([prompt], new)[0]

    def inside(self, prompt: Ids, start: int) -> list[Continuation]:
        """One request that echoes what the prompt's own tokens were preceded by."""
        if self.endpoint.forced is None:
            raise NotOfferedError("needs log-probabilities of prompt tokens (vLLM: prompt_logprobs)")

        def likeliest(positions: Sequence[Position]) -> list[Continuation]:
            if len(positions) <= len(prompt) or not all(position.top for position in positions[1:]):
                raise UnusableError("log-probabilities of some tokens missing")
            tops = [position.top for position in positions[start + 1 :]]
            return [Continuation((top,), (max(top, key=lambda key: top[key]),)) for top in tops]

        asked = self.completions.ask_prompt(
            self.endpoint, prompt, fields=self._apart(), use=likeliest, top=self._top
        )
        try:
            continuations: list[Continuation] = self._wait(asked)
        except UnusableError as error:
            raise NotOfferedError(f"the server gives no such answer here: {error}") from None
        return continuations

    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        """Not by requests: a warm prefix cache does it."""
        raise NotOfferedError(NOT_IN_PARTS, absent=True)

    def token_by_token(self, prompt: Ids, start: int, new: int) -> Continuation:
        """Not by requests: a server decodes its own tokens only."""
        raise NotOfferedError(NOT_STEPS, absent=True)

    def in_batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        """Requests that are under way at the same time."""
        return self._ask(prompts, new)

    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """A request that begins alike, then this one, which finds its beginning in the cache."""
        if self.completions.capabilities.uncached is None:
            raise NotOfferedError(NOT_PREFIX)
        fields = self.completions.own_cache()
        self._ask([prompt[:cut] + other], 1, fields)
        return self._ask([prompt], new, fields)[0]

    def restored(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Not by requests."""
        raise NotOfferedError("no request saves or restores a state", absent=True)

    def cropped(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Not by requests."""
        raise NotOfferedError("no request takes tokens back", absent=True)

    def reordered(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Not by requests."""
        raise NotOfferedError("no request reorders rows", absent=True)

    def speculative(self, prompt: Ids, new: int) -> Continuation:
        """Known only to whoever started the server."""
        if self.speculates is False:
            raise NotOfferedError("the server decodes without drafts", absent=True)
        raise NotOfferedError(DRAFTS_HIDDEN)

    @property
    def _top(self) -> int:
        return min(TOP, self.endpoint.top)

    def _ask(
        self, prompts: Sequence[Ids], new: int, fields: dict[str, Any] | None = None
    ) -> list[Continuation]:
        """Continue prompts in requests that are under way at the same time."""
        fields = (self._apart() if fields is None else fields) | self.endpoint.logprob_fields(self._top)
        if self.completions.capabilities.uncached:
            fields |= {"ignore_eos": True}  # vLLM and llama.cpp, whose continuations would else end early

        async def one(prompt: Ids) -> Continuation:
            def refuse(answer: Answer) -> None:
                if not answer.positions or not all(position.top for position in answer.positions):
                    raise UnusableError("log-probabilities missing")
                if self.endpoint.counts and answer.prompt_tokens not in (None, len(prompt)):
                    raise UnusableError(f"{answer.prompt_tokens} tokens read of a prompt of {len(prompt)}")

            answer = await self.completions.ask(self.endpoint, prompt, new, fields=fields, refuse=refuse)
            positions = (answer.positions or ())[:new]
            tokens = tuple(position.key for position in positions) if answer.ids is None else answer.ids[:new]
            return Continuation(tuple(position.top for position in positions), tokens)

        async def every() -> list[Continuation]:
            return await asyncio.gather(*map(one, prompts))

        try:
            continuations: list[Continuation] = self._wait(every())
        except UnusableError as error:
            raise ServerError(f"{self.name} gives no usable answer: {error}; {ADVICE} when it does") from None
        return continuations

    def _apart(self) -> dict[str, Any]:
        return self.completions.without_cache()


def require_rounding(dtype: str) -> None:
    """Refuse a number format that no engine computes in.

    Raises:
        UsageError: naming those that are known.
    """
    if dtype not in ROUNDING:
        raise UsageError(f"unknown dtype {dtype!r}; known: {', '.join(ROUNDING)}")


@contextmanager
def connected(
    url: str,
    *,
    model: str | None = None,
    tokenizer: Tokenizer | None = None,
    limits: Limits | None = None,
    **settings: Any,
) -> Iterator[ServerEngine]:
    """An engine behind a server, for as long as the context lasts; the key is read from OPENAI_API_KEY.

    Args:
        url: the server's address, with or without /v1.
        model: which of its models; by default the only one.
        tokenizer: of the served model, to draw prompts from its whole vocabulary.
        limits: how fast it is asked, and for how long.
        **settings: as `ServerEngine` has them.

    Raises:
        UsageError: if the address holds a password or a query, the server has several models and none is named, or
            it cannot be checked.
        ServerError: if it is not reached.
    """
    client = Client(url, key=key_from(None), limits=limits or Limits(), advice=ADVICE)
    if tokenizer is not None:
        settings["ids"] = tuple(
            token for token in range(tokenizer.size) if token not in tokenizer.special_ids
        )
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(client):
        completions = Completions(client, portal.call(probe, client, model, tokenizer))
        yield ServerEngine(completions, lambda request: portal.call(lambda: request), **settings)
