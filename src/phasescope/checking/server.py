"""An OpenAI-compatible server as a subject: what can be asked of an engine through requests alone.

Each request carries token ids and reads the most probable tokens of every step. A way of reading that no
request can bring about is not offered, with what would decide it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx2
import stamina

from ..backends.openai.client import key_from, server_root
from ..errors import UsageError
from .engine import Continuation, EngineUnderTest, Ids, NotOfferedError

IDS = tuple(range(40, 104))  # single bytes and short pieces in every byte-level vocabulary
TOP = 20
ATTEMPTS = 4
ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
Control = Literal["cache_prompt", "cache_salt"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer.

    Attributes:
        rows: log-probabilities of the most probable tokens of each step, by id or text.
        tokens: what was chosen, as the rows name it.
        ids: the same as ids, where the server tells them.
        prompt_rows: the same as `rows` for each token of the prompt, the first one empty.
    """

    rows: tuple[dict[str, float], ...]
    tokens: tuple[str, ...]
    ids: tuple[int, ...] | None = None
    prompt_rows: tuple[dict[str, float], ...] | None = None


class Transport(Protocol):
    """Sends prompts to a server.

    Attributes:
        name: the served model.
        control: the field by which a request keeps away from the prefix cache; None if there is none.
        context: the longest prompt; None if it is not known.
        echoes: whether the log-probabilities of a prompt's own tokens can be had.
    """

    name: str
    control: Control | None
    context: int | None
    echoes: bool

    def complete(
        self, prompts: Sequence[Ids], new: int, *, fields: dict[str, Any], echo: bool = False
    ) -> list[Completion]:
        """Answers to prompts that are under way at the same time."""
        ...


class ServerEngine(EngineUnderTest):
    """An engine behind requests.

    Args:
        transport: how it is asked.
        dtype: its coarsest number format, as far as is known; the tolerance follows from it.
        ids: token ids that prompts are made of.
        selects: whether its model chooses entries or experts by scores; None if that is not known.
        speculates: False for an engine that is known to decode without drafts.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        dtype: str = "bfloat16",
        ids: Ids = IDS,
        selects: bool | None = None,
        speculates: bool | None = None,
    ) -> None:
        if dtype not in ROUNDING:
            raise UsageError(f"unknown dtype {dtype!r}; known: {', '.join(ROUNDING)}")
        self.transport, self.name, self.dtype = transport, transport.name, dtype
        self.ids, self.selects, self.speculates = ids, selects, speculates
        self.eps = ROUNDING[dtype]
        self.longest = transport.context or 4096

    def facts(self) -> dict[str, Any]:
        """What was asked, and how."""
        return {
            "subject": self.name,
            "access": "server",
            "dtype": self.dtype,
            "cache_control": self.transport.control,
        }

    def whole(self, prompt: Ids, new: int) -> Continuation:
        """One request, kept away from the prefix cache where the server lets a request do that."""
        return self._ask([prompt], new)[0]

    def inside(self, prompt: Ids, start: int) -> list[Continuation]:
        """One request that echoes what the prompt's own tokens were preceded by."""
        if not self.transport.echoes:
            raise NotOfferedError("needs log-probabilities of prompt tokens (vLLM: prompt_logprobs)")
        (answer,) = self.transport.complete([prompt], 1, fields=self._apart(), echo=True)
        if answer.prompt_rows is None or len(answer.prompt_rows) != len(prompt):
            raise NotOfferedError("the server did not return log-probabilities of all prompt tokens")
        rows = [*answer.prompt_rows[1:], answer.rows[0]][start:]
        return [Continuation((row,), (max(row, key=lambda name: row[name], default=""),)) for row in rows]

    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        """Not by requests: a warm prefix cache does it."""
        raise NotOfferedError("a request cannot cut its prompt; the row `prefix` does", absent=True)

    def token_by_token(self, prompt: Ids, start: int, new: int) -> Continuation:
        """Not by requests: a server decodes its own tokens only."""
        raise NotOfferedError("a server decodes its own tokens only; the row `decode` does", absent=True)

    def in_batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        """Requests that are under way at the same time."""
        return self._ask(prompts, new)

    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """A request that begins alike, then this one, which finds its beginning in the cache."""
        if self.transport.control is None:
            raise NotOfferedError(
                "needs a prefix cache that a request can avoid (vLLM: cache_salt; llama.cpp: cache_prompt)"
            )
        fields = self._together()
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
        raise NotOfferedError(
            "whether the server decodes with drafts is not visible; start it without them and say --no-drafts"
        )

    def _ask(
        self, prompts: Sequence[Ids], new: int, fields: dict[str, Any] | None = None
    ) -> list[Continuation]:
        fields = self._apart() if fields is None else fields
        answers = self.transport.complete(prompts, new, fields=fields)
        return [Continuation(answer.rows, answer.ids or answer.tokens) for answer in answers]

    def _apart(self) -> dict[str, Any]:
        """What keeps a request away from the prefix cache."""
        if self.transport.control == "cache_salt":
            return {"cache_salt": secrets.token_hex(8)}
        return {"cache_prompt": False} if self.transport.control == "cache_prompt" else {}

    def _together(self) -> dict[str, Any]:
        """What lets the next requests share a prefix cache with each other alone."""
        if self.transport.control == "cache_salt":
            return {"cache_salt": secrets.token_hex(8)}
        return {"cache_prompt": True, "id_slot": 0}


class HttpTransport:
    """Completions over HTTP, with what servers add to them: ids of tokens, cache fields.

    Args:
        url: the server's address, with or without /v1.
        model: which of its models; by default the only one.
        key_env: the environment variable that holds the key; by default OPENAI_API_KEY, if it is set.
        timeout: seconds until an answer must be there.

    Raises:
        UsageError: if the address holds a password or a query, the server cannot be reached, or it has several models
            and none is named.
    """

    def __init__(
        self, url: str, *, model: str | None = None, key_env: str | None = None, timeout: float = 120.0
    ) -> None:
        self.root = server_root(url)
        key = key_from(key_env)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            self.http = httpx2.Client(headers=headers, timeout=timeout)
            listed = self._json("GET", "/v1/models", None)["data"]
        except (httpx2.HTTPError, httpx2.InvalidURL, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"no OpenAI-compatible server at {self.root}: {_line(error)}") from None
        names = [entry.get("id") for entry in listed]
        if model is None and len(names) != 1:
            raise UsageError(
                f"{self.root} serves {', '.join(map(str, names)) or 'no model'}; name one with --model"
            )
        entry: dict[str, Any] = next((one for one in listed if model in (None, one.get("id"))), listed[0])
        self.name = str(model or entry["id"])
        context = entry.get("max_model_len") or (entry.get("meta") or {}).get("n_ctx")
        self.context = context if isinstance(context, int) else None
        owner = entry.get("owned_by")
        controls: dict[Any, Control] = {"vllm": "cache_salt", "llamacpp": "cache_prompt"}
        self.control = controls.get(owner)
        self.echoes = owner == "vllm"

    def complete(
        self, prompts: Sequence[Ids], new: int, *, fields: dict[str, Any], echo: bool = False
    ) -> list[Completion]:
        """Answers to prompts that are under way at the same time; failed requests are repeated."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self._complete(prompt, new, fields, echo), prompts))

    def _complete(self, prompt: Ids, new: int, fields: dict[str, Any], echo: bool) -> Completion:
        body = {
            "model": self.name,
            "prompt": list(prompt),
            "max_tokens": new,
            "temperature": 0,
            "logprobs": TOP,
            "seed": 0,
            **({"return_tokens_as_token_ids": True, "ignore_eos": True} if self.control else {}),
            **({"prompt_logprobs": TOP} if echo else {}),
            **fields,
        }
        try:
            answer = self._json("POST", "/v1/completions", body)
            choice = answer["choices"][0]
            completion = _read(choice)
        except (httpx2.HTTPError, ValueError) as error:
            raise UsageError(f"{self.root} did not answer: {_line(error)}") from None
        except (AttributeError, KeyError, IndexError, TypeError):
            raise UsageError(
                f"{self.root} gives no log-probabilities of its tokens; the check needs them"
            ) from None
        if not completion.rows:
            raise UsageError(f"{self.root} gives no log-probabilities of its tokens; the check needs them")
        return completion

    def _json(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        for attempt in stamina.retry_context(on=httpx2.TransportError, attempts=ATTEMPTS, timeout=60.0):
            with attempt:
                response = self.http.request(method, self.root + path, json=body)
        if response.status_code >= 400:
            raise ValueError(f"status {response.status_code}: {response.text[:200]}")
        return response.json()


def _read(choice: dict[str, Any]) -> Completion:
    """A choice in either shape: parallel lists, or records with ids."""
    told = choice["logprobs"]
    if told.get("content") is not None:
        records = told["content"]
        rows = tuple({_name(one): float(one["logprob"]) for one in r["top_logprobs"]} for r in records)
        tokens = tuple(_name(record) for record in records)
    else:
        rows = tuple({str(name): float(p) for name, p in (row or {}).items()} for row in told["top_logprobs"])
        tokens = tuple(str(token) for token in told["tokens"])
    ids = tuple(token.removeprefix("token_id:") for token in tokens)
    known = all(one.isdecimal() for one in ids) and bool(ids) and all(":" in token for token in tokens)
    prompt = choice.get("prompt_logprobs")
    return Completion(
        rows,
        tokens,
        tuple(int(one) for one in ids) if known else None,
        None if prompt is None else tuple(_ranked(entry) for entry in prompt),
    )


def _name(record: dict[str, Any]) -> str:
    return f"token_id:{record['id']}" if isinstance(record.get("id"), int) else str(record["token"])


def _ranked(entry: dict[str, Any] | None) -> dict[str, float]:
    return {f"token_id:{token}": float(one["logprob"]) for token, one in (entry or {}).items()}


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
