"""What an OpenAI-compatible server can do, found out by asking it, before anything is measured.

A field that is accepted proves nothing: servers pass over what they don't know. So each ability is
believed only when an answer shows it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from ...errors import ServerError, UsageError
from ...text.tokens import Tokenizer
from .capabilities import (
    Capabilities,
    Endpoint,
    Forced,
    Kind,
    printable,
    prompt_logprob_fields,
    tokenize_body,
)
from .client import DEFECTS, Client, RefusedError, UnusableError
from .lookup import Lookup
from .replies import Answer, Position, ServedModels, prompt_positions, read_answer, read_tokens

IDS = tuple(range(40, 104))
"""A prompt of ids that every vocabulary has; longer than the blocks in which servers cache prefixes."""

TOPS = (200_000, 1000, 100, 20, 5, 1)
"""How many log-probabilities are asked for, until a server gives some; the first is more than any vocabulary."""

NAMED = (128, 32, 1)
"""How many tokens are asked for by id."""

SAMPLE = "M\N{LATIN SMALL LETTER U WITH DIAERESIS}ller's 1,234 notes:\n  def area(r): return 3.14 * r ** 2"
"""A text that different tokenizers take apart differently."""

MOVES = (0, 1, 8)
"""Tokens by which a prompt is made longer, to see the server's count move."""

TOLERANCE = 0.2
"""How far two ways to one log-probability may differ, in nats, at a token that hardly has a rival."""

SALTED = ("vllm", "sglang")
"""Servers that are known to keep the cached prefixes of requests with different salts apart."""

T = TypeVar("T")


async def probe(client: Client, model: str | None, tokenizer: Tokenizer | None) -> Capabilities:
    """Ask a server some forty short questions about itself.

    Args:
        client: entered.
        model: its name; may be left out where the server has one model.
        tokenizer: of the served model; without it texts are not counted.

    Raises:
        UsageError: if the model has to be named.
        ServerError: if the server is not reached, or answers neither completions nor chat.
    """
    found = await _models(client, model)
    asker = _Asker(client, found.model, tokenizer)
    completions = await asker.endpoint("completions")
    chat = await asker.endpoint("chat")
    if completions is None and chat is None:
        raise ServerError(f"{client.host} answers neither completions nor chat: {asker.refusal}")
    found = replace(found, completions=completions, chat=chat, tokenize=await asker.tokenize())
    caches, uncached = await asker.cache(completions or chat, found.server)
    return replace(found, caches=caches, uncached=uncached)


async def _models(client: Client, model: str | None) -> Capabilities:
    """Which model is asked, from the server's list."""
    try:
        listed = ServedModels.model_validate(await client.offer("GET", "/v1/models")).data
    except (RefusedError, ValidationError):
        listed = ()
    entries = [entry for entry in listed if entry is not None]
    if model is None and len(entries) != 1:
        names = ", ".join(printable(entry.id) for entry in entries[:10]) or "none"
        raise UsageError(f"{client.host} lists {len(entries)} models ({names}); name one with --model")
    # Some servers answer to any name with the one model they have.
    named = [entry for entry in entries if model in (None, entry.id)] or entries
    if len(named) != 1:
        return Capabilities(server=None, model=str(model), context=None)
    (entry,) = named
    context = entry.max_model_len or entry.n_ctx or None
    return Capabilities(server=entry.owned_by, model=model or entry.id, context=context)


class _Asker:
    """The questions, each of which changes one thing about a request that works.

    What an answer lacks is asked for again before it counts as lacking: a single answer may be defective.
    """

    def __init__(self, client: Client, model: str, tokenizer: Tokenizer | None) -> None:
        self.client = client
        self.model = model
        self.tokenizer = tokenizer
        self.lookup = Lookup(tokenizer)
        self.refusal = "nothing"
        self.names: list[str] = []
        last = tokenizer.size if tokenizer else IDS[-1] + 1
        self.ids = tuple(token for token in IDS if token < last)

    async def endpoint(self, kind: Kind) -> Endpoint | None:
        """What the endpoint offers, if it exists."""
        self.names.clear()
        found = await self._basics(kind)
        if found is None:
            return None
        if kind == "completions":
            found = replace(found, token_ids=await self._takes_ids(found))
        found = replace(found, echoes=await self._echoes(found))
        found = await self._counted(found)
        found = await self._logprobs(found)
        if found.logprobs and found.by_id:
            found = replace(found, named=await self._named(found))
        if found.token_ids and found.logprobs:
            found = replace(found, forced=await self._forced(found))
        # One repeated id may be a stray answer; a server without ids of its own repeats one for ever.
        return replace(found, unique=all(self.names) and 2 * len(set(self.names)) > len(self.names))

    async def tokenize(self) -> Literal["prompt", "content"] | None:
        """Which field of /tokenize gives tokens; some servers answer to the wrong one with an empty list."""
        fields: tuple[Literal["prompt", "content"], ...] = ("prompt", "content")
        for field in fields:
            try:
                body = tokenize_body(self.model, field, SAMPLE)
                tokens = read_tokens(await self.client.offer("POST", "/tokenize", body))
            except (RefusedError, UnusableError):
                continue
            if tokens:
                self._compare(tokens)
                return field
        return None

    def _compare(self, tokens: tuple[int, ...]) -> None:
        """Refuse a tokenizer that gives other ids than the server's."""
        if self.tokenizer is None:
            return
        own = tuple(self.tokenizer.encode(SAMPLE))
        if tokens not in (own, self.tokenizer.start_ids + own):
            raise UsageError(foreign(self.tokenizer))

    async def cache(
        self, endpoint: Endpoint | None, server: str | None
    ) -> tuple[bool | None, Literal["cache_prompt", "cache_salt"] | None]:
        """Whether a repeated prompt is read from a cache, and which field prevents it."""
        if endpoint is None:
            return None, None
        first = await self._ask(endpoint, self._prompt(endpoint))
        if first is None or first.cached_tokens is None:
            caches = None
        else:
            caches = bool(await self._see(endpoint, lambda answer: answer.cached_tokens))
        if caches is False:
            return caches, None
        unread = await self._see(endpoint, _reads_all, cache_prompt=False) if caches else None
        if unread:
            return caches, "cache_prompt"
        salted = await self._ask(endpoint, self._prompt(endpoint), cache_salt=secrets.token_hex(8))
        if salted is not None and (_reads_all(salted) if caches else server in SALTED):
            return caches, "cache_salt"
        return caches, None

    async def _basics(self, kind: Kind) -> Endpoint | None:
        """The fullest request that the endpoint accepts."""
        lengths = ("max_tokens", "max_completion_tokens") if kind == "chat" else ("max_tokens",)
        for temperature, seed in ((True, True), (True, False), (False, True), (False, False)):
            for length in lengths:
                found = Endpoint(kind, length=length, temperature=temperature, seed=seed)
                try:
                    await self._asked(found, "Hello")
                    return found
                except RefusedError as error:
                    self.refusal = str(error)
                    if error.status in (404, 405):
                        return None
                except UnusableError as error:
                    self.refusal = str(error)
                    return None
        return None

    async def _takes_ids(self, endpoint: Endpoint) -> bool:
        """Whether a list of ids is read as one prompt of so many tokens."""
        with_ids = replace(endpoint, token_ids=True)
        lengths = (None, len(self.ids))
        return bool(await self._see(with_ids, lambda answer: answer.prompt_tokens in lengths or None))

    async def _echoes(self, endpoint: Endpoint) -> bool:
        """Whether the prompt's ids come back."""

        def echoed(answer: Answer) -> bool | None:
            return answer.prompt_ids == self.ids if endpoint.token_ids else bool(answer.prompt_ids)

        return bool(await self._see(endpoint, echoed, return_token_ids=True))

    async def _counted(self, endpoint: Endpoint) -> Endpoint:
        """Move the prompt by known numbers of tokens, and see the count move by exactly these."""
        if endpoint.token_ids:
            counts = [
                await self._count(endpoint, self.ids + self.ids[:move], len(self.ids) + move)
                for move in MOVES
            ]
            endpoint = replace(endpoint, counts=counts == [len(self.ids) + move for move in MOVES])
        texts = ["a b c" + " a" * move for move in MOVES]
        own = [
            len(self.tokenizer.encode(text)) if self.tokenizer else move
            for text, move in zip(texts, MOVES, strict=True)
        ]
        first = await self._count(endpoint, texts[0])
        if first is None:
            return endpoint
        extra = max(0, first - own[0])
        moved = [
            await self._count(endpoint, text, extra + n) == extra + n
            for text, n in zip(texts, own, strict=True)
        ]
        if not all(moved):
            return endpoint
        if self.tokenizer:
            expected = extra + len(self.tokenizer.encode(SAMPLE))
            if await self._count(endpoint, SAMPLE, expected) != expected:
                raise UsageError(foreign(self.tokenizer))
        return replace(
            endpoint,
            counts=endpoint.counts or not endpoint.token_ids,
            extra=extra if self.tokenizer else None,
        )

    async def _count(
        self, endpoint: Endpoint, prompt: str | Sequence[int], expected: int | None = None
    ) -> int | None:
        """How many tokens the server says it read: what was expected, if it says so at least once."""
        count = None
        for _ in range(DEFECTS):
            answer = await self._ask(endpoint, prompt)
            count = None if answer is None else answer.prompt_tokens
            if count is None or expected in (None, count):
                break
        return count

    async def _logprobs(self, endpoint: Endpoint) -> Endpoint:
        """How many log-probabilities there are, and what they call their tokens."""
        for top in TOPS:
            fields = replace(endpoint, by_id=endpoint.echoes).logprob_fields(top)
            if await self._ask(endpoint, self._prompt(endpoint), **fields) is None:
                continue
            first = await self._see(endpoint, _first_position, **fields)
            if first is None:
                break
            by_id = isinstance(first.key, int)
            found = replace(endpoint, logprobs=True, by_id=by_id, top=min(top, len(first.top)))
            return replace(found, exact=by_id and await self._exact(found))
        return endpoint

    async def _exact(self, endpoint: Endpoint) -> bool:
        """Whether two numbers of log-probabilities that are asked for are the numbers that come."""
        for top in (2, 3):
            fields = endpoint.logprob_fields(top)
            first = await self._see(endpoint, _first_position, **fields)
            if endpoint.top < top or first is None or len(first.top) != top:
                return False
        return True

    async def _named(self, endpoint: Endpoint) -> int:
        """How many tokens' log-probabilities can be asked for by id; unlikely ones show that it is meant."""
        for count in NAMED:
            tokens = [*range(3, 3 + count)]
            fields = endpoint.logprob_fields(1) | {"logprob_token_ids": tokens}

            def holds(answer: Answer, tokens: list[int] = tokens) -> bool | None:
                first = _first_position(answer)
                return first is not None and self.lookup.find_all(first, tokens) is not None

            if await self._see(endpoint, holds, **fields):
                return count
        return 0

    async def _forced(self, endpoint: Endpoint) -> Forced | None:
        """Whether the prompt's own log-probabilities are told, of the right tokens.

        A token that the model has just chosen is put behind the prompt, and must get the log-probability
        that it had when it was chosen: a server whose echo is off by one is found out.
        """
        chosen = await self._see(endpoint, _first_position, **endpoint.logprob_fields(1))
        token = self._token(chosen.key) if chosen else None
        if chosen is None or token is None:
            return None
        prompt = (*self.ids, token)
        ways: tuple[Forced, ...] = ("prompt_logprobs", "echo")
        for way in ways:
            body = endpoint.body(prompt, 1, model=self.model, **prompt_logprob_fields(endpoint, way))
            for _ in range(DEFECTS):
                try:
                    reply = await self.client.offer("POST", endpoint.path, body)
                    last = prompt_positions(reply, len(prompt))[len(prompt) - 1]
                except RefusedError:
                    break
                except UnusableError:
                    continue
                logprob = self.lookup.find(last, token)
                if logprob is not None and abs(logprob - (chosen.logprob or 0.0)) < TOLERANCE:
                    return way
        return None

    def _token(self, key: int | str) -> int | None:
        """The id that an answer means."""
        if isinstance(key, int):
            return key
        ids = self.tokenizer.encode(key) if self.tokenizer else []
        return ids[0] if len(ids) == 1 else None

    def _prompt(self, endpoint: Endpoint) -> str | tuple[int, ...]:
        return self.ids if endpoint.token_ids else "a b c d e f g h " * 8 + "a"

    async def _see(self, endpoint: Endpoint, look: Callable[[Answer], T | None], **fields: Any) -> T | None:
        """What is looked for in the answer to the usual prompt: found at the latest in the last try."""
        for _ in range(DEFECTS):
            try:
                seen = look(await self._asked(endpoint, self._prompt(endpoint), **fields))
            except RefusedError:
                return None
            except UnusableError:
                continue
            if seen:
                return seen
        return None

    async def _ask(self, endpoint: Endpoint, prompt: str | Sequence[int], **fields: Any) -> Answer | None:
        """The answer to a request that the server may not know how to read."""
        try:
            return await self._asked(endpoint, prompt, **fields)
        except (RefusedError, UnusableError):
            return None

    async def _asked(self, endpoint: Endpoint, prompt: str | Sequence[int], **fields: Any) -> Answer:
        body = endpoint.body(prompt, 1, model=self.model, **fields)
        answer = read_answer(await self.client.offer("POST", endpoint.path, body))
        self.names.append(answer.name)
        self.client.names[answer.name] = "a question of the probe"
        return answer


def foreign(tokenizer: Tokenizer) -> str:
    """What is said of a tokenizer that is not the served model's."""
    return (
        f"the server reads texts as other tokens than the tokenizer {tokenizer.name} gives; name the folder of the "
        "model that is served with --tokenizer"
    )


def _first_position(answer: Answer) -> Position | None:
    return answer.positions[0] if answer.positions else None


def _reads_all(answer: Answer) -> bool | None:
    return answer.cached_tokens == 0
