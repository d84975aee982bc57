"""A subject that remembers what it was asked, as one prompt is the reference of many comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .engine import Continuation, EngineUnderTest, Ids

KEPT = 3
"""Prompts of which every token's row is kept: a sweep asks three again and again, and a whole vocabulary is large."""


@dataclass
class CachedReader:
    """Remembers for as long as one rule for ties holds.

    Attributes:
        engine: who is asked.
        new: tokens of the greedy continuation.
        fixed: further tokens to put behind prompts.
    """

    engine: EngineUnderTest
    new: int
    fixed: Ids
    known: dict[tuple[Ids, int], Continuation] = field(default_factory=dict)
    longer: dict[tuple[Ids, int], Sequence[Continuation]] = field(default_factory=dict)
    slow: dict[Ids, Continuation] = field(default_factory=dict)

    def whole(self, prompt: Ids, new: int) -> Continuation:
        """The prompt in one piece: the reference of every comparison."""
        if (prompt, new) not in self.known:
            self.known[prompt, new] = self.engine.whole(prompt, new)
        return self.known[prompt, new]

    def stepped(self, prompt: Ids) -> Continuation:
        """The prompt token by token, from the first one on."""
        if prompt not in self.slow:
            self.slow[prompt] = self.engine.token_by_token(prompt, 1, self.new)
        return self.slow[prompt]

    def inside(self, prompt: Ids, start: int) -> Sequence[Continuation]:
        """What follows each token of the prompt from `start` on."""
        if (prompt, start) not in self.longer:
            if len(self.longer) >= KEPT:
                self.longer.clear()
            self.longer[prompt, start] = self.engine.inside(prompt, start)
        return self.longer[prompt, start]

    def tail(self, count: int) -> Ids:
        """The same further tokens whenever asked."""
        return self.fixed[:count]
