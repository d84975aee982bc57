"""How a fake server reads prompts and writes log-probabilities, in the shapes that servers differ in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...text.tokens import Tokenizer
from .model import RARE
from .offers import Offers

Json = dict[str, Any]
Step = dict[int, float]
"""Log-probabilities of the likeliest next tokens."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The shapes that one server's offers and tokenizer come to."""

    offers: Offers
    tokenizer: Tokenizer | None

    def prompt(self, body: Json) -> tuple[int, ...] | None:
        """What the model reads."""
        if "messages" in body:
            assert self.tokenizer is not None  # a chat is text
            return tuple(self.tokenizer.encode(self.tokenizer.render(body["messages"])))
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            return (*self.offers.start, *self.encode(prompt))
        return tuple(prompt) if isinstance(prompt, list) and prompt and self.offers.token_ids else None

    def encode(self, text: str) -> list[int]:
        """The ids of a text; without a tokenizer the lengths of its words."""
        return self.tokenizer.encode(text) if self.tokenizer else [len(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; without a tokenizer their digits."""
        return self.tokenizer.decode(ids) if self.tokenizer else " ".join(map(str, ids))

    def logprobs(self, tokens: Sequence[int], steps: Sequence[Step], body: Json) -> Json:
        """Log-probabilities in the shape that the server has."""
        write = self._records if self.offers.logprobs == "records" else self.lists
        return write(tokens, steps, body)

    def lists(self, tokens: Sequence[int], steps: Sequence[Step], body: Json) -> Json:
        """Log-probabilities as the old completions give them."""
        by_id = self.offers.names == "ids" and (
            self.tokenizer is None or body.get("return_tokens_as_token_ids")
        )

        def name(token: int) -> str:
            if by_id or self.tokenizer is None:
                return f"token_id:{token}"
            return self.tokenizer.decode([token])

        return {
            "tokens": [name(token) for token in tokens],
            "token_logprobs": [step.get(token, RARE) for token, step in zip(tokens, steps, strict=True)],
            "top_logprobs": [{name(t): p for t, p in self._requested(step, body)} for step in steps],
        }

    def _records(self, tokens: Sequence[int], steps: Sequence[Step], body: Json) -> Json:
        """Log-probabilities as chats give them, and llama.cpp everything."""

        def record(token: int, logprob: float) -> Json:
            text = self.tokenizer.decode([token]) if self.tokenizer else str(token)
            own = {"id": token} if self.offers.names == "ids" else {}
            return {**own, "token": text, "bytes": list(text.encode()), "logprob": logprob}

        return {
            "content": [
                record(token, step.get(token, RARE))
                | {"top_logprobs": [record(*pair) for pair in self._requested(step, body)]}
                for token, step in zip(tokens, steps, strict=True)
            ]
        }

    def _requested(self, step: Step, body: Json) -> list[tuple[int, float]]:
        """What a request wants to know of one step."""
        return self.likeliest(step, top_of(body) or 0, body.get("logprob_token_ids", ())[: self.offers.named])

    def likeliest(self, step: Step, top: int, named: Sequence[int]) -> list[tuple[int, float]]:
        """The `top` likeliest tokens, filled up from the vocabulary's end; and those named by id."""
        size = self.tokenizer.size if self.tokenizer else 1000
        ranked = sorted(step.items(), key=lambda pair: -pair[1])[:top]
        rest = (token for token in reversed(range(size)) if token not in step)
        ranked += [(token, RARE) for token, _ in zip(rest, range(top - len(ranked)), strict=False)]
        return ranked + [(token, step.get(token, RARE)) for token in named if token not in dict(ranked)]


def top_of(body: Json) -> int | None:
    """How many log-probabilities per token a request wants; None for no log-probabilities."""
    top: int | None = body.get("top_logprobs" if "messages" in body else "logprobs")
    return top
