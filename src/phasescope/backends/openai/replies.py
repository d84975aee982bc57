"""What OpenAI-compatible servers answer, in the shapes they give it, read into one form.

Log-probabilities come as parallel lists (the old completions), as records (chat; llama.cpp for both), and
name their tokens by text, by an `id`, or as `token_id:17`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...text.tokens import Tokenizer
from .client import UnusableError

Key = int | str
"""What names a token in an answer: its id where the server tells it, else its text."""


@dataclass(frozen=True, slots=True)
class Position:
    """One generated token.

    Attributes:
        key: the token.
        logprob: its natural log-probability.
        top: those of the likeliest tokens here, as many as were told.
    """

    key: Key
    logprob: float
    top: Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a server.

    Attributes:
        name: the answer's own id; empty where there is none.
        text: the continuation.
        ids: its tokens, where the server tells them.
        prompt_tokens: how many tokens of prompt the server says it read.
        cached_tokens: how many of them it had read before, where it tells.
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


def read_answer(body: Any) -> Answer:
    """Read the answer to a completion or chat request.

    Raises:
        UnusableError: if it has not exactly one choice, or holds no text where text should be.
    """
    choice = _only_choice(body)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    if text is None and isinstance(message, dict):
        text = ""  # a model that only reasoned, or refused, has said nothing that could be scored
    if not isinstance(text, str):
        raise UnusableError("an answer without text")
    positions = _positions(choice.get("logprobs"))
    ids = _ids(choice.get("token_ids"))
    if ids is None and positions and all(isinstance(position.key, int) for position in positions):
        ids = tuple(int(position.key) for position in positions)
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    echoed = _ids(choice.get("prompt_token_ids"))
    return Answer(
        name=str(body.get("id") or ""),
        text=text,
        ids=ids,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        prompt_ids=_ids(body.get("prompt_token_ids")) if echoed is None else echoed,
        positions=positions,
    )


def forced_positions(body: Any, count: int) -> list[Position]:
    """Log-probabilities at the prompt's own tokens, each after those before it.

    Servers tell them as `prompt_logprobs` or, with `echo`, among those of the answer.

    Raises:
        UnusableError: if there are not `count` of them.
    """
    choice = _only_choice(body)
    told = choice.get("prompt_logprobs") or body.get("prompt_logprobs")
    if isinstance(told, list):
        positions = [Position("", math.nan, _ranked(entry)) for entry in told]
    else:
        positions = list(_positions(choice.get("logprobs"), echo=True) or ())[:count]
    if len(positions) != count:
        raise UnusableError("log-probabilities of the prompt missing")
    return positions


class Lookup:
    """Finds a token's log-probability under whichever name the server gives it.

    A text is a token's name only if it is encoded to that token and nothing else; without a tokenizer
    only ids are names.

    Args:
        tokenizer: of the served model.
    """

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str | None] = {}

    def find(self, position: Position, token: int) -> float | None:
        """The token's log-probability, if the answer holds it."""
        told = position.top.get(token)
        if told is None and position.key == token:
            told = position.logprob
        name = self._name(token)
        if told is None and name is not None:
            told = position.top.get(name)
            if told is None and position.key == name:
                told = position.logprob
        return told if told is not None and math.isfinite(told) else None

    def find_all(self, position: Position, tokens: Iterable[int]) -> tuple[float, ...] | None:
        """Those of all tokens, or nothing."""
        found = [self.find(position, token) for token in tokens]
        whole = tuple(logprob for logprob in found if logprob is not None)
        return whole if found and len(whole) == len(found) else None

    def _name(self, token: int) -> str | None:
        if self._tokenizer is None:
            return None
        if token not in self._names:
            text = self._tokenizer.decode([token])
            self._names[token] = text if text and self._tokenizer.encode(text) == [token] else None
        return self._names[token]


def _only_choice(body: Any) -> dict[str, Any]:
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not all(isinstance(c, dict) for c in choices):
        raise UnusableError("an answer without choices")
    if len(choices) > 1:
        raise UnusableError("more than one choice where one was asked for")
    only: dict[str, Any] = choices[0]
    return only


def _positions(told: Any, *, echo: bool = False) -> tuple[Position, ...] | None:
    """Log-probabilities in either shape; with `echo` a missing one at the first token is NaN."""
    if not isinstance(told, dict):
        return None
    try:
        if isinstance(told.get("content"), list):
            return tuple(
                Position(
                    _record_key(record),
                    _number(record["logprob"]),
                    _records(record.get("top_logprobs") or []),
                )
                for record in told["content"]
            )
        logprobs, tokens = told["token_logprobs"], told["tokens"]
        tops = told.get("top_logprobs") or [{}] * len(tokens)
        return tuple(
            Position(
                _text_key(token),
                math.nan if echo and index == 0 and logprob is None else _number(logprob),
                {_text_key(name): _number(value) for name, value in (top or {}).items()},
            )
            for index, (token, logprob, top) in enumerate(zip(tokens, logprobs, tops, strict=True))
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _records(records: list[Any]) -> dict[Key, float]:
    """The likeliest tokens by name, without names that stand for more than one of them."""
    found: dict[Key, float] = {}
    twice = set()
    for record in records:
        key = _record_key(record)
        if key in found:
            twice.add(key)
        found[key] = _number(record["logprob"])
    return {key: logprob for key, logprob in found.items() if key not in twice}


def _record_key(record: Any) -> Key:
    if isinstance(record.get("id"), int):
        return int(record["id"])
    key = _text_key(record["token"])
    if isinstance(key, str) and isinstance(record.get("bytes"), list):
        try:
            return bytes(record["bytes"]).decode()
        except UnicodeDecodeError:
            return key
    return key


def _text_key(token: Any) -> Key:
    if not isinstance(token, str):
        raise TypeError("a token is named by text")
    number = token.removeprefix("token_id:")
    return int(number) if number != token and number.isdecimal() else token


def _ranked(entry: Any) -> dict[Key, float]:
    """One position of vLLM's prompt_logprobs: id → record; empty at the first token."""
    if not isinstance(entry, dict):
        return {}
    try:
        return {int(token): _number(record["logprob"]) for token, record in entry.items()}
    except (KeyError, TypeError, ValueError):
        return {}


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value > 0.01:
        raise ValueError("no log-probability")
    return float(value)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _ids(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(isinstance(index, int) for index in value):
        return tuple(value)
    return None
