"""What OpenAI-compatible servers answer, in the shapes they give it, validated and read into one form.

Log-probabilities come as parallel lists (the old completions), as records (chat; llama.cpp for both), and
name their tokens by text, by an `id`, or as `token_id:17`. A damaged part of a reply is read as if it were
missing; what a reply must have and has not is the reason for which it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic reads these from Python 3.12 on only
)

from pydantic import (
    AliasPath,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from typing_extensions import TypedDict

from ...records import Record
from ...text.tokens import Tokenizer
from .client import UnusableError

Key = int | str
"""What names a token in an answer: its id where the server gives it, else its text."""

MOST = 2**31 - 1
"""No count of tokens is larger."""

MOST_ID = 2**24 - 1
"""No vocabulary has a larger id."""

LEAST = -1e5
"""Nats; no model gives a token less, and what a server puts for "never" is above it."""

CUT = frozenset({"content_filter", "error", "abort", "aborted", "cancelled"})
"""Reasons to finish of answers that are not the model's own."""

LONGEST_TEXT = 2**20
"""Characters of an answer beyond which it is refused."""

ROUNDED_UP = 0.01
"""Nats by which a server's rounding may lift a log-probability above 0."""


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


OR_NONE = WrapValidator(_or_none)
TokenId = Annotated[int, Field(strict=True, ge=0, le=MOST_ID)]
Logprob = Annotated[float, Field(strict=True, ge=LEAST, le=ROUNDED_UP, allow_inf_nan=False)]
Count = Annotated[Annotated[int, Field(strict=True, ge=0, le=MOST)] | None, OR_NONE]
Ids = Annotated[tuple[TokenId, ...] | None, OR_NONE]
Name = Annotated[str, Field(strict=True, max_length=1000)]


class Wire(Record):
    """A part of a reply; fields that we do not read are passed over."""

    model_config = ConfigDict(extra="ignore")


class TokenRecord(TypedDict):
    """One token with its log-probability, as chats give it; a dict, as there may be a whole vocabulary of them."""

    token: Annotated[str, Field(strict=True)]
    id: NotRequired[TokenId | None]
    bytes: NotRequired[list[Annotated[int, Field(ge=0, le=255)]] | None]
    logprob: Logprob
    top_logprobs: NotRequired[list[TokenRecord] | None]


class Logprobs(Wire):
    """Log-probabilities of one choice, in either shape."""

    content: list[TokenRecord] | None = None
    tokens: list[Annotated[str, Field(strict=True)]] | None = None
    token_logprobs: list[Logprob | None] | None = None
    top_logprobs: list[dict[str, Logprob] | None] | None = None

    def positions(self, *, echo: bool = False) -> tuple[Position, ...] | None:
        """One per token; with `echo` the first one may have no log-probability."""
        if self.content is not None:
            return tuple(
                Position(_record_key(record), record["logprob"], _records(record.get("top_logprobs") or []))
                for record in self.content
            )
        if self.tokens is None or self.token_logprobs is None or None in self.token_logprobs[echo:]:
            return None
        tops = self.top_logprobs or [None] * len(self.tokens)
        if not len(self.tokens) == len(self.token_logprobs) == len(tops):
            return None
        return tuple(
            Position(_text_key(token), logprob, {_text_key(name): p for name, p in (top or {}).items()})
            for token, logprob, top in zip(self.tokens, self.token_logprobs, tops, strict=True)
        )


class Ranked(TypedDict):
    """One token of vLLM's prompt_logprobs."""

    logprob: Logprob


PromptLogprobs = Annotated[list[dict[Annotated[int, Field(ge=0, le=MOST_ID)], Ranked] | None] | None, OR_NONE]


class Choice(Wire):
    """One continuation: the text of a completion, or the message of a chat."""

    text: Any = None
    message: Annotated[dict[str, Any] | None, OR_NONE] = None
    logprobs: Annotated[Logprobs | None, OR_NONE] = None
    token_ids: Ids = None
    prompt_token_ids: Ids = None
    prompt_logprobs: PromptLogprobs = None
    finish_reason: Annotated[Name | None, OR_NONE] = None

    def said(self) -> str:
        """The text; empty for a model that only reasoned, or refused.

        Raises:
            UnusableError: if there is none that could be kept, or it is not the model's own.
        """
        if self.finish_reason in CUT:
            raise UnusableError(f"an answer cut short ({self.finish_reason})")
        text = self.text if self.message is None else self.message.get("content") or ""
        if not isinstance(text, str):
            raise UnusableError("an answer without text")
        if len(text) > LONGEST_TEXT:
            raise UnusableError(f"an answer of more than {LONGEST_TEXT:,} characters")
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            raise UnusableError("an answer whose text is not valid Unicode") from None
        return text


class Completion(Wire):
    """The reply to a completion or chat request."""

    id: Any = None
    choices: list[Choice] = Field(min_length=1)
    prompt_tokens: Count = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))
    cached_tokens: Count = Field(
        None, validation_alias=AliasPath("usage", "prompt_tokens_details", "cached_tokens")
    )
    prompt_token_ids: Ids = None
    prompt_logprobs: PromptLogprobs = None

    @classmethod
    def read(cls, reply: Any) -> tuple[Completion, Choice]:
        """Validate a reply.

        Raises:
            UnusableError: if it has not exactly one choice.
        """
        try:
            found = cls.model_validate(reply)
        except ValidationError:
            raise UnusableError("an answer without choices") from None
        if len(found.choices) > 1:
            raise UnusableError("more than one choice where one was asked for")
        return found, found.choices[0]


class ServedModel(Wire):
    """One entry of a server's list of models; llama.cpp gives the context as `meta.n_ctx`, vLLM as `max_model_len`."""

    id: Name
    owned_by: Annotated[Name | None, OR_NONE] = None
    max_model_len: Count = None
    n_ctx: Count = Field(None, validation_alias=AliasPath("meta", "n_ctx"))


class ServedModels(Wire):
    """A server's list of models; entries without a name are passed over."""

    data: tuple[Annotated[ServedModel | None, OR_NONE], ...] = ()


class Tokenized(Wire):
    """The reply of /tokenize."""

    tokens: tuple[TokenId, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """One generated token.

    Attributes:
        key: the token.
        logprob: its natural log-probability; None for a prompt's first token.
        top: those of the likeliest tokens here, as many as the server gives.
    """

    key: Key
    logprob: float | None
    top: Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a server.

    Attributes:
        name: the answer's own id; empty where there is none.
        text: the continuation.
        ids: its tokens, where the server gives them.
        prompt_tokens: how many tokens of prompt the server says it read.
        cached_tokens: how many of them it had read before, where it says so.
        prompt_ids: the tokens of the prompt, where the server echoes them.
        positions: log-probabilities per generated token, where the server gives any.
    """

    name: str
    text: str
    ids: tuple[int, ...] | None
    prompt_tokens: int | None
    cached_tokens: int | None
    prompt_ids: tuple[int, ...] | None
    positions: tuple[Position, ...] | None

    def continuation(self, tokenizer: Tokenizer | None) -> tuple[int, ...]:
        """The tokens of the continuation: told, or else those that its text is encoded to."""
        if self.ids is not None:
            return self.ids
        return tuple(tokenizer.encode(self.text)) if tokenizer else ()


def read_answer(reply: Any) -> Answer:
    """Read the reply to a completion or chat request.

    Raises:
        UnusableError: if it has not exactly one choice, or holds no text where text should be.
    """
    found, choice = Completion.read(reply)
    positions = choice.logprobs.positions() if choice.logprobs else None
    ids = choice.token_ids
    if ids is None and positions:
        keys = tuple(position.key for position in positions if isinstance(position.key, int))
        ids = keys if len(keys) == len(positions) else None
    if ids == () and choice.said():
        raise UnusableError("an answer whose text has no tokens")
    return Answer(
        name=str(found.id or ""),
        text=choice.said(),
        ids=ids,
        prompt_tokens=found.prompt_tokens,
        cached_tokens=found.cached_tokens,
        prompt_ids=found.prompt_token_ids if choice.prompt_token_ids is None else choice.prompt_token_ids,
        positions=positions,
    )


def prompt_positions(reply: Any, count: int) -> list[Position]:
    """Log-probabilities at each token of the prompt, given those before it, then at the generated tokens.

    Servers give them as `prompt_logprobs` or, with `echo`, among those of the answer.

    Raises:
        UnusableError: if there are fewer than `count` of them.
    """
    found, choice = Completion.read(reply)
    ranked = choice.prompt_logprobs or found.prompt_logprobs
    given = choice.logprobs.positions(echo=ranked is None) if choice.logprobs else None
    positions = list(given or ())
    if ranked is not None:
        tops: list[dict[Key, float]] = [
            {token: one["logprob"] for token, one in (entry or {}).items()} for entry in ranked
        ]
        positions = [Position("", None, top) for top in tops] + positions if len(tops) == count else []
    if len(positions) < count:
        raise UnusableError("log-probabilities of the prompt missing")
    return positions


def read_tokens(reply: Any) -> tuple[int, ...]:
    """The ids that /tokenize gives.

    Raises:
        UnusableError: if it gives none.
    """
    try:
        return Tokenized.model_validate(reply).tokens
    except ValidationError:
        raise UnusableError("/tokenize gives no tokens") from None


def _records(records: list[TokenRecord]) -> dict[Key, float]:
    """The likeliest tokens by name, without names that stand for more than one of them."""
    found: dict[Key, float] = {}
    twice = set()
    for record in records:
        key = _record_key(record)
        if key in found:
            twice.add(key)
        found[key] = record["logprob"]
    return {key: logprob for key, logprob in found.items() if key not in twice}


def _record_key(record: TokenRecord) -> Key:
    number, spelt = record.get("id"), record.get("bytes")
    if number is not None:
        return number
    key = _text_key(record["token"])
    if isinstance(key, str) and spelt is not None:
        try:
            return bytes(spelt).decode()
        except UnicodeDecodeError:
            return key
    return key


def _text_key(token: str) -> Key:
    number = token.removeprefix("token_id:")
    return int(number) if number != token and number.isdecimal() and len(number) <= 10 else token
