"""OpenAI-compatible servers: asked on token ids where they take them, and never trusted about positions.

Of every trial it is verified how many tokens the server read, or which. A trial that was read otherwise
than planned is no observation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ...errors import UsageError
from ...grid import WindowGrid
from ...records import NoReply, Reply, Trial
from ...text.synthetic import RetrievalVocabulary
from ...text.tokens import Tokenizer
from ..prefixes import in_order
from .capabilities import Capabilities, Endpoint
from .client import DEFECTS, Client, Limits, UnusableError, key_from, run
from .completions import Completions
from .doubts import (
    mixed_up,
    refuse_other_ids,
    refuse_short_sight,
    tagged,
    untagged,
    untagged_most,
    warn_of_mixing,
)
from .forms import Form, Forms
from .lookup import Lookup
from .mismatched import ANOTHER, MismatchedResponses
from .probe import probe
from .replies import Answer, Position

WIDE = 1000
"""Log-probabilities per token that are asked for at first, of a server that would give a whole vocabulary."""
FEW = 20
"""The same where an answer has several tokens."""


class OpenAIBackend:
    """Answers trials by asking an OpenAI-compatible server, greedily, several at a time.

    What the server can do is probed first. A prompt goes out as token ids where the server takes them; a
    chat trial as the message inside its template, a plain one as text, elsewhere. It is verified by the
    ids that the server echoes, else by its count of prompt tokens, which the probe has seen move rightly,
    else (for texts) by its /tokenize endpoint. What differs is dropped, as `NoReply`.

    Log-probabilities that a server does not tell are None: an answer that is not among the likeliest
    tokens is no defect, and to drop it would favour right answers. A reply that lacks them altogether,
    from a server that gives them, is asked for again and then dropped, as that says nothing of the answer.

    Replies do not depend on `limits`: not on how many requests are under way.

    Args:
        base_url: where the server is, with or without /v1.
        model: the model's name there; may be left out where the server has only one.
        tokenizer: of the served model; needed by texts, chats and synthetic prompts.
        key_env: the environment variable with the key; by default OPENAI_API_KEY, if it is set.
        limits: how fast it is asked, and for how long.
        grids: the window grids of the model's KV cache; none for a control, unknown by default.
        ask: the form of the prompts; by default the first that the server takes.
        top_logprobs: log-probabilities per token, at most; by default what the server gives.
        prefix_cache: keep the server's prefix cache warm: whole layouts in order, one at a time per worker.
            By default the cache is switched off where the server lets us, as it is not there to be measured.
        unverified: measure even where nothing tells what the server read.
        vocabulary: the ids of synthetic prompts; by default the tokenizer's commonest words.

    Attributes:
        name: the model's name without its folders.
        tokens: prompt tokens that the server has read so far, cached ones not counted.
        capabilities: what the probe has found.
        forms: how prompts are put to it.

    Raises:
        UsageError: if the server cannot be asked, or nothing can verify what it reads.
        ServerError: if it is not reached.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        tokenizer: Tokenizer | None = None,
        *,
        key_env: str | None = None,
        limits: Limits | None = None,
        grids: Sequence[WindowGrid] | None = None,
        ask: Form | None = None,
        top_logprobs: int | None = None,
        prefix_cache: bool = False,
        unverified: bool = False,
        vocabulary: RetrievalVocabulary | None = None,
    ) -> None:
        if top_logprobs is not None and top_logprobs < 0:
            raise UsageError(f"top_logprobs is {top_logprobs}; give 0 or more")
        self.client = Client(base_url, key=key_from(key_env), limits=limits)
        self.tokenizer = tokenizer
        self.tokens = 0
        self.prefix_cache = prefix_cache
        self.capabilities = run(self._probe(model))
        self.name = self.capabilities.model.rstrip("/").rpartition("/")[2]
        self._grids = grids
        self._top = top_logprobs
        self._vocabulary = vocabulary
        self._lookup = Lookup(tokenizer)
        self._mismatched = MismatchedResponses(self.client.names)
        self._completions = Completions(self.client, self.capabilities)
        self._tokenized: dict[tuple[str, int], asyncio.Future[bool]] = {}
        self._alone = False
        self._reads_front = False
        self.forms = Forms(
            host=self.client.host,
            capabilities=self.capabilities,
            tokenizer=tokenizer,
            ask=ask,
            unverified=unverified,
        )

    def vocabulary(self) -> RetrievalVocabulary:
        """The ids it was given, else the commonest words of its tokenizer."""
        if self._vocabulary is None:
            if self.tokenizer is None:
                raise UsageError(
                    "prompts for a server are built with the tokenizer of the model that it serves; name its "
                    "folder with --tokenizer"
                )
            self._vocabulary = self.tokenizer.vocabulary()
        return self._vocabulary

    def describe(self) -> dict[str, Any]:
        """What the server is, how it is asked, and what that is worth; neither its address nor a secret."""
        own = self.tokenizer
        return {
            "backend": "openai",
            "model": self.name,
            "grids": None if self._grids is None else [asdict(grid) for grid in self._grids],
            "server": self.capabilities.describe(),
            "tokenizer": own and {"name": own.name, "digest": own.digest},
            "asked": {form: self.forms.verified_by(form) for form in self.forms.taken},
            "prefix_cache": self.capabilities.cache_state(warm=self.prefix_cache),
            "top_logprobs": self._top,
        }

    def answer(self, trials: Sequence[Trial]) -> list[Reply | NoReply]:
        """One reply per trial, in their order, or the reason why there is none.

        Raises:
            ServerError: if the server refuses, or does not answer in all tries; then nothing is kept.
            UsageError: if a trial cannot be put in any form that the server takes.
        """
        return run(self._answer(trials))

    async def _probe(self, model: str | None) -> Capabilities:
        async with self.client as client:
            return await probe(client, model, self.tokenizer)

    async def _answer(self, trials: Sequence[Trial]) -> list[Reply | NoReply]:
        """Ask all; a trial is asked again whose answer was given to another one too, or that had another's every time.

        Answers go astray between requests that are under way together, and those that are asked again are few.
        """
        replies: dict[int, Reply | NoReply] = {}
        units = whole = in_order(trials, layouts=self.prefix_cache)
        self._mismatched.clear()
        self._tokenized.clear()
        async with self.client:
            if not self._reads_front:
                await refuse_short_sight(self.client.host, trials, self._position)
                self._reads_front = True
            for _ in range(DEFECTS):
                await self._work(trials, units, replies)
                doubtful = [
                    index
                    for index, reply in replies.items()
                    if reply == NoReply(ANOTHER) or self._mismatched.doubtful(trials[index])
                ]
                units = [[index] for index in doubtful]
            together = min(self.client.limits.concurrency, len(trials)) > 1 and not self._alone
            if together and (doubtful or await mixed_up(trials, replies, self._reply)):
                warn_of_mixing(self.client.host)
                self._alone = True
                await self._work(trials, [[index] for index in doubtful] or whole, replies)
                doubtful = [index for index in doubtful if replies[index] == NoReply(ANOTHER)]
        replies |= dict.fromkeys(doubtful, NoReply(ANOTHER))
        return [replies[index] for index in range(len(trials))]

    async def _position(self, trial: Trial) -> Position | None:
        """The first token behind a prompt that need not be a trial of the run."""
        form = self.forms.of(trial)
        endpoint = self.forms.endpoint(form)
        if not self._tells_logprobs(endpoint) or endpoint.echoes:
            return None
        fields = endpoint.logprob_fields(self._wanted(endpoint, trial)) | self._extras(endpoint)
        try:
            answer = await self._completions.ask(endpoint, self.forms.prompt(form, trial), 1, fields=fields)
        except UnusableError:
            return None
        return answer.positions[0] if answer.positions else None

    async def _work(
        self, trials: Sequence[Trial], units: Sequence[list[int]], replies: dict[int, Reply | NoReply]
    ) -> None:
        """Workers take one unit after the other, and ask its trials in order."""
        waiting = deque(units)

        async def work(worker: int) -> None:
            while waiting:
                for index in waiting.popleft():
                    replies[index] = await self._reply(trials[index], worker)

        most = 1 if self._alone else self.client.limits.concurrency
        try:
            async with asyncio.TaskGroup() as workers:
                for worker in range(min(most, len(units))):
                    workers.create_task(work(worker))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _reply(self, trial: Trial, worker: int = 0) -> Reply | NoReply:
        """Ask one trial; a defect of its own is a reason, a failure of the server an error."""
        self._mismatched.begin(trial)
        form = self.forms.of(trial)
        if not self.forms.survives(form, trial):
            return NoReply("the prompt's text gives other tokens")
        endpoint = self.forms.endpoint(form)
        try:
            answer = await self._first(endpoint, form, trial, worker)
            drift = await self._drift(form, trial, answer)
            if drift is not None:
                return NoReply(f"position drifted: {drift}")
            logprob, candidates = await self._logprobs(endpoint, form, trial, answer)
        except UnusableError as error:
            return NoReply(str(error))
        return Reply(
            ids=answer.continuation(self.tokenizer)[: trial.new_tokens],
            prompt_tokens=len(trial.prompt_ids),
            answer_logprob=logprob,
            candidate_logprobs=candidates,
            text=answer.text,
        )

    async def _first(self, endpoint: Endpoint, form: Form, trial: Trial, worker: int) -> Answer:
        """The answer to a trial, by a request that differs from the others under way where that can be seen."""
        wanted = self._wanted(endpoint, trial)
        fields = self._logprob_fields(endpoint, trial)
        plain = not fields or "logprob_token_ids" in fields
        asked = wanted if plain else tagged(endpoint, wanted, worker)
        if asked != wanted:
            fields = endpoint.logprob_fields(asked)
        answer = await self._asked(
            endpoint, form, trial, trial.new_tokens, fields, lambda a: untagged(a, asked, wanted)
        )
        return untagged(answer, asked, wanted)

    async def _asked(
        self,
        endpoint: Endpoint,
        form: Form,
        trial: Trial,
        tokens: int,
        fields: dict[str, Any],
        see: Callable[[Answer], object] = lambda answer: None,
    ) -> Answer:
        """Send one trial, until the answer can be used; `see` may find that it cannot."""

        def refuse(answer: Answer) -> None:
            self._refuse_unusable(endpoint, form, trial, answer, bool(fields))
            see(answer)

        answer = await self._completions.ask(
            endpoint,
            self.forms.prompt(form, trial),
            tokens,
            fields=fields | self._extras(endpoint),
            refuse=refuse,
        )
        read = len(trial.prompt_ids) if answer.prompt_tokens is None else answer.prompt_tokens
        self.tokens += max(0, read - (answer.cached_tokens or 0))
        return answer

    def _extras(self, endpoint: Endpoint) -> dict[str, Any]:
        """Fields beside the question: ids to be echoed, and no cached prefix."""
        extras = {} if self.prefix_cache else self._completions.without_cache()
        return extras | ({"return_token_ids": True} if endpoint.echoes else {})

    def _refuse_unusable(
        self, endpoint: Endpoint, form: Form, trial: Trial, answer: Answer, logprobs: bool
    ) -> None:
        """Raise `UnusableError` for an answer that lacks what this server's answers have."""
        self._mismatched.refuse(endpoint, trial, answer)
        if form == "ids":
            refuse_other_ids(trial.prompt_ids, answer)
        if logprobs and not answer.positions and answer.text:
            raise UnusableError("log-probabilities missing")
        if self.tokenizer and max(answer.ids or (), default=0) >= self.tokenizer.size:
            raise UnusableError("a token outside the vocabulary")
        self.forms.refuse_unproven(form, answer)

    async def _drift(self, form: Form, trial: Trial, answer: Answer) -> str | None:
        """How the server read another prompt than planned, in words; nothing if it did not."""
        if self.forms.verified_by(form) != "tokenize endpoint":
            return self.forms.drift(form, trial, answer)
        # Layouts are what moves positions, so one text of each is compared.
        layout = (trial.cluster, trial.layout)
        if layout not in self._tokenized:
            self._tokenized[layout] = asyncio.ensure_future(self._tokenizes_as_planned(trial))
        return None if await self._tokenized[layout] else "other tokens read than planned"

    async def _tokenizes_as_planned(self, trial: Trial) -> bool:
        extra = self.forms.endpoint("text").extra or 0
        ids = await self._completions.tokenize(str(self.forms.prompt("text", trial)))
        return ids == trial.prompt_ids[extra:]

    async def _logprobs(
        self, endpoint: Endpoint, form: Form, trial: Trial, answer: Answer
    ) -> tuple[float | None, tuple[float, ...] | None]:
        """Log-probability of the right answer and of all candidates, as far as the server tells them."""
        if not self._tells_logprobs(endpoint) or not answer.positions:
            return None, None
        first, right = answer.positions[0], trial.answer_ids
        candidates = self._lookup.find_all(first, trial.candidate_ids) if trial.candidate_ids else None
        if len(right) > 1:
            return (await self._forced(endpoint, trial) if self._forces(endpoint, form) else None), candidates
        logprob = self._lookup.find(first, right[0])
        if logprob is not None:
            return logprob, candidates
        # Only unlikely answers come here. To drop them for a defect of the second request would favour the others.
        with contextlib.suppress(UnusableError):
            if self._wanted(endpoint, trial) < self._most(endpoint):
                whole = await self._whole(endpoint, form, trial)
                every = self._lookup.find_all(whole, trial.candidate_ids)
                return self._lookup.find(whole, right[0]), every or candidates
            if self._forces(endpoint, form):
                return await self._forced(endpoint, trial), candidates
        return None, candidates

    async def _whole(self, endpoint: Endpoint, form: Form, trial: Trial) -> Position:
        """The first token once more, with all the log-probabilities that there are."""
        fields = endpoint.logprob_fields(self._most(endpoint))
        answer = await self._asked(endpoint, form, trial, 1, fields)
        if not answer.positions or await self._drift(form, trial, answer) is not None:
            raise UnusableError("the prompt was read otherwise the second time")
        return answer.positions[0]

    def _forces(self, endpoint: Endpoint, form: Form) -> bool:
        return form == "ids" and endpoint.forced is not None

    async def _forced(self, endpoint: Endpoint, trial: Trial) -> float:
        """Log-probability of the whole answer, read as part of the prompt."""
        prompt = (*trial.prompt_ids, *trial.answer_ids)

        def total(positions: list[Position]) -> float:
            found = self._lookup.each(positions[len(trial.prompt_ids) :], trial.answer_ids)
            if found is None:
                raise UnusableError("log-probabilities of the prompt are of other tokens")
            return sum(found)

        logprob = await self._completions.ask_prompt(
            endpoint,
            prompt,
            fields=self._extras(endpoint),
            use=total,
            refuse=lambda answer: self._mismatched.refuse(endpoint, trial, answer),
        )
        self.tokens += len(prompt)
        return logprob

    def _logprob_fields(self, endpoint: Endpoint, trial: Trial) -> dict[str, Any]:
        """Which log-probabilities to ask for: those needed by their ids, or as many as it takes."""
        if not self._tells_logprobs(endpoint):
            return {}
        fields = endpoint.logprob_fields(self._wanted(endpoint, trial))
        needed = list(dict.fromkeys([trial.answer_ids[0], *trial.candidate_ids]))
        needed = needed if len(needed) <= endpoint.named else needed[:1]
        if endpoint.named and self._top is None:
            return endpoint.logprob_fields(1) | {"logprob_token_ids": needed}
        return fields

    def _tells_logprobs(self, endpoint: Endpoint) -> bool:
        return endpoint.logprobs and self._top != 0

    def _most(self, endpoint: Endpoint) -> int:
        return endpoint.top if self._top is None else min(self._top, endpoint.top)

    def _wanted(self, endpoint: Endpoint, trial: Trial) -> int:
        """How many log-probabilities to ask for at first: few for each of many tokens."""
        if self._top is not None:
            return self._most(endpoint)
        return min(WIDE if trial.new_tokens == 1 else FEW, untagged_most(endpoint))
