"""Which prompts are read how: lengths and cuts around every boundary of every grid, and at random."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import UsageError
from .engine import Ids

ENGINE_STRIDES = (16, 64)
"""Pages and tiles of common engines: asked of every engine, as no config names them."""
MOST_STRIDE = 4096
SWEPT = 48  # consecutive cuts: three periods of a page of 16


@dataclass(frozen=True, slots=True)
class PromptCase:
    """One prompt and the way it is read.

    Attributes:
        prompt: the tokens whose continuation is compared.
        cut: how many of them are read before something else happens; 0 where nothing does.
        other: further tokens that are read beside the prompt: another tail, a draft, a neighbour.
        pads: left pads.
    """

    prompt: Ids
    cut: int = 0
    other: Ids = ()
    pads: int | None = None

    def coordinates(self) -> dict[str, int]:
        """The numbers by which failures may be folded."""
        found = {"length": len(self.prompt)}
        if self.cut:
            found |= {"cut": self.cut, "rest": len(self.prompt) - self.cut}
        if self.pads is not None:
            found["pads"] = self.pads
        return found

    def redrawn(self, ids: Ids, rng: np.random.Generator) -> Self:
        """The same with other tokens: each id becomes another one, the same everywhere."""
        new = dict(zip(ids, rng.permutation(ids).tolist(), strict=True))
        change = [tuple(new[token] for token in tokens) for tokens in (self.prompt, self.other)]
        return replace(self, prompt=change[0], other=change[1])

    def without(self, start: int, tokens: int) -> Self | None:
        """The same without some tokens of the prompt; None where too few would be left."""
        end = start + tokens
        prompt = self.prompt[:start] + self.prompt[end:]
        if not self.cut:
            return replace(self, prompt=prompt) if prompt else None
        cut = self.cut - max(0, min(end, self.cut) - start)
        return replace(self, prompt=prompt, cut=cut) if 0 < cut < len(prompt) else None


@dataclass(frozen=True)
class PromptPlan:
    """Where an engine is asked.

    Args:
        strides: of every grid: of the model's windows, the engine's chunks, pages and tiles.
        longest: the longest prompt.
        ids: token ids to draw prompts from.
        rng: of every draw.
        random_lengths: prompts of lengths that no grid suggests.
        sweep: this many consecutive lengths are read in one piece; 0 for none.
        cases: per invariance.

    Raises:
        UsageError: for numbers outside their range.
    """

    strides: tuple[int, ...]
    longest: int
    ids: Ids
    rng: np.random.Generator
    random_lengths: int = 8
    sweep: int = 256
    cases: int = 24

    def __post_init__(self) -> None:
        for stride in self.strides:
            if isinstance(stride, bool) or not isinstance(stride, int) or not 2 <= stride <= MOST_STRIDE:
                raise UsageError(f"stride {stride!r}: give whole numbers from 2 to {MOST_STRIDE}")
        if self.longest < 16:
            raise UsageError(f"longest prompt of {self.longest} tokens; give at least 16")
        if len(set(self.ids)) < 8:
            raise UsageError(f"{len(set(self.ids))} token ids to draw prompts from; give at least 8")

    @property
    def joint(self) -> tuple[int, ...]:
        """The strides, and where all of them meet if that is not too far."""
        together = math.lcm(*self.strides) if self.strides else 0
        return tuple(sorted({*self.strides, *([together] if 1 < together <= self.longest else [])}))

    def boundaries(self, below: int) -> list[int]:
        """One before, at and after the first two multiples of every stride and one random one, under `below`."""
        found = set()
        for stride in self.joint:
            multiples = range(1, below // stride + 1)
            some = {*multiples[:2], *([int(self.rng.choice(multiples))] if multiples else [])}
            found |= {count * stride + near for count in some for near in (-1, 0, 1)}
        return sorted(place for place in found if 1 <= place < below)

    def lengths(self) -> list[int]:
        """Prompt lengths around every boundary, and random ones."""
        random = self.rng.integers(2, self.longest + 1, size=self.random_lengths).tolist()
        return sorted({*(length for length in self.boundaries(self.longest + 1) if length >= 2), *random})

    def tokens(self, count: int) -> Ids:
        """So many tokens, drawn."""
        return tuple(self.rng.choice(self.ids, size=count).tolist())

    def cut_cases(self, other: int = 0, rest: int = 1) -> Iterator[PromptCase]:
        """Prompts with a cut: at boundaries and anywhere, in prompts of all lengths.

        Args:
            other: most further tokens of each case; drawn from 1 on.
            rest: fewest tokens behind the cut.
        """
        lengths = [length for length in self.lengths() if length > rest]
        for index in range(self.cases):
            length = lengths[int(self.rng.integers(len(lengths)))]
            places = self.boundaries(length - rest + 1)
            if index % 2 or not places:  # boundaries and random cuts alternate
                places = range(1, length - rest + 1)  # type: ignore[assignment]
            cut = int(self.rng.choice(places))
            more = int(self.rng.integers(1, other + 1)) if other else 0
            yield self._parted(PromptCase(self.tokens(length), cut, self.tokens(more)))

    def cut_sweep(self, like: PromptCase, rest: int = 1) -> Iterator[PromptCase]:
        """One prompt with cuts at consecutive places, to see by what they fold."""
        more = min(self.longest, SWEPT + 8) - len(like.prompt)
        prompt = like.prompt + self.tokens(max(0, more))
        most = min(len(prompt) - rest, SWEPT)
        return (self._parted(replace(like, prompt=prompt, cut=cut)) for cut in range(1, most + 1))

    def _parted(self, case: PromptCase) -> PromptCase:
        """The case with other tokens that part from the prompt right at the cut: no more than `cut` is shared."""
        if not case.other or not case.cut or case.other[0] != case.prompt[case.cut]:
            return case
        first = next(token for token in self.ids if token != case.other[0])
        return replace(case, other=(first, *case.other[1:]))


def spread(items: Sequence[PromptCase], most: int) -> list[PromptCase]:
    """At most so many of the cases, evenly over their order."""
    if len(items) <= most:
        return list(items)
    return [items[index] for index in np.linspace(0, len(items) - 1, most).round().astype(int)]
