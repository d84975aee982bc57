"""Equal calls: by how much they differ, and whether by chance or by what was asked before.

Every prompt is asked three times, in turns of which the second goes backwards: between two equal calls others were
asked, shorter ones before the first and the third, longer ones before the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .cases import PromptCase
from .engine import Continuation, EngineUnderTest, gap, size

FAR = 1.0
"""Nats by which no noise moves a log-probability: calls that differ by more were not answered alike."""
OFTEN = 3  # prompts of which the same turn stands out, and on fresh prompts again
PAIRS = ((0, 1), (1, 2), (0, 2))
APART = ((0, 2), (0, 1), (1, 2))  # of each turn, the pairs that it is in
TURNS = (
    "the first call of a prompt differs from the second and the third, which agree",
    "a call after a longer prompt differs from those after a shorter one, which agree",
    "the third call of a prompt differs from the first and the second, which agree",
)


@dataclass(frozen=True)
class EqualCalls:
    """What equal calls showed.

    Attributes:
        cases: the prompts, shorter ones first.
        gaps: of each prompt the largest difference between its calls.
        floor: the largest of them, but for a call that is known to stand alone.
        state: which call differs from which, where that is a fault; empty where it is none.
    """

    cases: tuple[PromptCase, ...]
    gaps: tuple[float, ...]
    floor: float
    state: str = ""


class Asked:
    """Prompts that were asked in turns.

    Attributes:
        cases: the prompts, shorter ones first.
        pairs: of each prompt the differences between its calls, as in `PAIRS`.
        size: the largest log-probability of a row by its amount, as the median over all rows.
    """

    def __init__(self, engine: EngineUnderTest, cases: Sequence[PromptCase], new: int) -> None:
        self.cases = tuple(cases)
        answers: list[list[Continuation]] = [[] for _ in cases]
        for turn in range(len(TURNS)):
            for index in range(len(cases))[:: -1 if turn == 1 else 1]:
                answers[index].append(engine.whole(cases[index].prompt, new))
        self.pairs = [[gap(calls[one], calls[other]) for one, other in PAIRS] for calls in answers]
        self.size = float(np.median([size(row) for calls in answers for call in calls for row in call.rows]))

    @property
    def gaps(self) -> tuple[float, ...]:
        """Of each prompt the largest difference between its calls."""
        return tuple(max(pair) for pair in self.pairs)

    def odd(self, near: float) -> list[int]:
        """The turns that stand alone, of every prompt with just one such: the two other calls agree."""
        found = []
        for pair in self.pairs:
            far = {index for index, distance in enumerate(pair) if distance > near}
            found += [turn for turn, apart in enumerate(APART) if far == set(apart)]
        return found

    def judged(self, near: float, far: float, again: Callable[[], Asked]) -> EqualCalls:
        """Whether the differences are noise or a fault.

        Args:
            near: differences up to here are none.
            far: differences beyond it are no noise.
            again: asks fresh prompts of the same lengths.
        """
        gaps = self.gaps
        first, others = self.pairs[0], gaps[1:]
        if min(first[0], first[2]) > far and first[1] <= near and max(others, default=0.0) <= far:
            said = (
                f"the first prompt of all is answered otherwise when it is asked again: its first call differs "
                f"from its second by {first[0]:.1e}, which agrees with the third, and no other prompt does so"
            )
            return EqualCalls(self.cases, gaps, max(first[1], *others), said)
        odd = Counter(self.odd(near)).most_common(1)
        if odd and odd[0][1] >= OFTEN and again().odd(near).count(odd[0][0]) >= OFTEN:
            said = f"{TURNS[odd[0][0]]}, for {odd[0][1]} of {len(gaps)} prompts and again for fresh ones"
            return EqualCalls(self.cases, gaps, max(gaps), said)
        said = f"no noise moves a log-probability by {max(gaps):.1e}" if max(gaps) > far else ""
        return EqualCalls(self.cases, gaps, max(gaps), said)
