"""An engine of a few lines without torch, with faults on demand."""

from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from phasescope.checking.engine import Continuation, EngineUnderTest, Ids

VOCABULARY = 40


class Toy(EngineUnderTest):
    """Log-probabilities from a decaying sum over tokens and their neighbours: all of the prompt matters.

    Args:
        noise: largest difference between equal calls.
        tied: the model chooses among equal scores, and what it then says depends on the prompt's length.
        visible: whether these scores can be seen and settled.
    """

    def __init__(self, *, noise: float = 0.0, tied: bool = False, visible: bool = True) -> None:
        rng = np.random.default_rng(0)
        self.name, self.ids, self.eps, self.longest = "toy", tuple(range(VOCABULARY)), 2.0**-23, 600
        self.embedding = rng.normal(size=(VOCABULARY, 24))
        self.readout = rng.normal(size=(24, VOCABULARY)) * 0.5
        self.noise, self.tied, self.visible = noise, tied, visible
        self.rng = np.random.default_rng(1)
        self.is_settled = False
        self.calls = 0

    def state(self, ids: Ids) -> Any:
        """What the engine keeps of tokens."""
        age = np.arange(len(ids))[::-1, None]
        weight = 0.97**age * np.cos(0.3 * age + np.arange(24))
        return (weight * self.embedding[list(ids)]).sum(0)

    def row(self, ids: Ids, extra: int = 0) -> Any:
        """Log-probabilities after these tokens, of which `extra` stand in the same forward behind them."""
        self.calls += 1
        logits = self.state(ids) @ self.readout + self.noise * self.rng.uniform(-1, 1, VOCABULARY)
        if self.tied and not self.is_settled:
            logits = logits + 0.3 * np.sin(np.arange(VOCABULARY) * (len(ids) + extra))
        if self.tied and self.is_settled:
            self.equal_scores += 1
        return logits - np.log(np.exp(logits).sum())

    def go_on(self, ids: Ids, new: int, said: Ids | None = None) -> Continuation:
        """The greedy continuation; `said` is what the engine takes the prompt for."""
        rows, tokens = [], []
        for _ in range(new):
            rows.append(self.row((ids if said is None else said) + tuple(tokens)))
            tokens.append(int(rows[-1].argmax()))
        return Continuation(tuple(rows), tuple(tokens))

    def whole(self, prompt: Ids, new: int) -> Continuation:
        return self.go_on(prompt, new)

    def inside(self, prompt: Ids, start: int) -> list[Continuation]:
        rows = [self.row(prompt[:end], len(prompt) - end) for end in range(start + 1, len(prompt) + 1)]
        return [Continuation((row,), (int(row.argmax()),)) for row in rows]

    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        return self.go_on(prompt, new)

    def in_batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        return [self.go_on(prompt, new) for prompt in prompts]

    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        return self.go_on(prompt, new)

    def noisy(self, prompt: Ids, new: int, rng: np.random.Generator) -> Continuation:
        clean = self.whole(prompt, new)
        rows = tuple(np.asarray(row) + 1e-7 * rng.normal(size=VOCABULARY) for row in clean.rows)
        return Continuation(rows, clean.tokens)

    @contextmanager
    def settled(self) -> Any:
        if not self.visible:
            with super().settled():
                yield
        self.is_settled = True
        try:
            yield
        finally:
            self.is_settled = False


class LosesTail(Toy):
    """The tokens of a chunk behind its last window of four."""

    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        kept, start = (), 0
        for end in [*cuts, len(prompt)]:
            whole = len(kept) // 4 * 4 if end - start > 1 else len(kept)
            kept, start = kept[:whole] + prompt[start:end], end
        return self.go_on(prompt, new, kept)


class RoundsHits(Toy):
    """A prefix hit of whole blocks of sixteen."""

    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        hit = min(-(-cut // 16) * 16, cut + len(other), len(prompt) - 1)
        return self.go_on(prompt, new, (prompt[:cut] + other)[:hit] + prompt[hit:])


class WrongAtLength(Toy):
    """A prompt of 37 modulo 128 tokens."""

    def whole(self, prompt: Ids, new: int) -> Continuation:
        wrong = len(prompt) % 128 == 37
        return self.go_on(prompt, new, prompt[1:] if wrong else prompt)
