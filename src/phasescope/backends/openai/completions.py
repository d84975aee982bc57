"""One model of a server, asked for completions: what `measure` and `check` send, and what they read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .capabilities import Capabilities, Endpoint, prompt_logprob_fields, tokenize_body
from .client import Client
from .replies import Answer, Position, prompt_positions, read_answer, read_tokens

T = TypeVar("T")


def accept(answer: Answer) -> None:
    """Take any answer that can be read."""


@dataclass(frozen=True)
class Completions:
    """Asks greedily, until an answer can be used.

    The methods that ask raise `UnusableError` if the server keeps giving answers that cannot be used, and
    `ServerError` if it refuses, or does not answer in all tries.

    Attributes:
        client: how requests get there; entered by whoever asks.
        capabilities: what the probe has found.
    """

    client: Client
    capabilities: Capabilities

    async def ask(
        self,
        endpoint: Endpoint,
        prompt: str | Sequence[int],
        tokens: int,
        *,
        fields: dict[str, Any],
        refuse: Callable[[Answer], None] = accept,
    ) -> Answer:
        """Continue one prompt.

        Args:
            endpoint: where it is asked.
            prompt: ids, or a text; the message of a chat.
            tokens: of the continuation.
            fields: further fields of the request.
            refuse: raises `UnusableError` for an answer that cannot be used.
        """

        def read(reply: Any) -> Answer:
            answer = read_answer(reply)
            refuse(answer)
            return answer

        return await self._post(endpoint, prompt, tokens, fields, read)

    async def ask_prompt(
        self,
        endpoint: Endpoint,
        prompt: Sequence[int],
        *,
        fields: dict[str, Any],
        use: Callable[[list[Position]], T],
        top: int = 0,
        refuse: Callable[[Answer], None] = accept,
    ) -> T:
        """Use the log-probabilities at each token of a prompt, given those before it, then at one generated token.

        Args:
            endpoint: one whose `forced` says how it gives them.
            prompt: ids.
            fields: further fields of the request.
            use: makes something of them, or raises `UnusableError`.
            top: of the likeliest tokens at each place; 0 for the prompt's own tokens alone.
            refuse: raises `UnusableError` for an answer that cannot be used.
        """

        def read(reply: Any) -> T:
            refuse(read_answer(reply))
            return use(prompt_positions(reply, len(prompt)))

        asked = prompt_logprob_fields(endpoint, endpoint.forced, top)
        return await self._post(endpoint, prompt, 1, asked | fields, read)

    async def tokenize(self, text: str) -> tuple[int, ...]:
        """The ids that a server with a /tokenize endpoint makes of a text."""
        assert self.capabilities.tokenize is not None
        body = tokenize_body(self.capabilities.model, self.capabilities.tokenize, text)
        return await self.client.post("/tokenize", body, read_tokens)

    def without_cache(self) -> dict[str, Any]:
        """The field that keeps a request away from the prefix cache, where there is one."""
        if self.capabilities.uncached == "cache_salt":
            return {"cache_salt": secrets.token_hex(8)}
        return {"cache_prompt": False} if self.capabilities.uncached == "cache_prompt" else {}

    def own_cache(self) -> dict[str, Any]:
        """The fields with which the requests that carry them share a prefix cache with each other alone."""
        if self.capabilities.uncached == "cache_salt":
            return {"cache_salt": secrets.token_hex(8)}
        return {"cache_prompt": True, "id_slot": 0}

    async def _post(
        self,
        endpoint: Endpoint,
        prompt: str | Sequence[int],
        tokens: int,
        fields: dict[str, Any],
        read: Callable[[Any], T],
    ) -> T:
        body = endpoint.body(prompt, tokens, model=self.capabilities.model, **fields)
        return await self.client.post(endpoint.path, body, read)
