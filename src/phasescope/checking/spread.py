"""What an engine's own kernels change: the same prompt in other shapes, away from every boundary.

A batch of equal lengths has other rows and no pads; a last token that is read alone meets the kernels for one row. Both
change nothing but how sums are rounded. Either of them may itself be at fault, so only what both show is spread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from .cases import PromptPlan
from .engine import Continuation, EngineUnderTest, Ids, NotOfferedError, gap

PROMPTS = 8
AWAY = 2  # tokens between a length and the next boundary
SHORTEST = 6
BEHIND = 5  # further tokens of a longer prompt
MOST = 0.5  # nats by which quantised kernels for one row and for many are known to differ


def spread_of(engine: EngineUnderTest, plan: PromptPlan, new: int) -> float | None:
    """The upper quartile of the differences between shapes: the smaller one of batches and of single rows.

    Returns:
        nats; None if the engine takes no batches.
    """
    batches: list[float] = []
    rows: dict[str, list[float]] = {}
    for length in _lengths(plan):
        prompt = plan.tokens(length)
        whole = engine.whole(prompt, new)
        try:
            batched = _batched(engine, plan, prompt, new)
        except NotOfferedError:
            return None
        batches += [gap(whole, one) for one in batched]
        for kind, difference in _alone(engine, plan, prompt, whole, batched[0]):
            rows.setdefault(kind, []).append(difference)
    both = (_upper(batches), max((_upper(found) for found in rows.values()), default=0.0))
    return min(both) if max(both) <= MOST else 0.0  # what one of them loses is no rounding


def _upper(gaps: list[float]) -> float:
    """A few prompts at a boundary that is not known do not count."""
    return float(np.quantile(gaps, 0.75, method="lower"))


def _lengths(plan: PromptPlan) -> list[int]:
    """Lengths away from the multiples of every stride, where strides leave any."""
    every = range(min(SHORTEST, plan.longest - BEHIND), plan.longest - BEHIND + 1)
    strides = [
        stride for stride in plan.strides if stride > 4 * AWAY
    ]  # smaller ones leave nothing between them
    far = [n for n in every if all(AWAY < n % stride < stride - AWAY for stride in strides)]
    return plan.rng.choice(far or list(every), size=PROMPTS).tolist()


def _batched(engine: EngineUnderTest, plan: PromptPlan, prompt: Ids, new: int) -> list[Continuation]:
    """Among prompts of its length: at another place, and among more."""
    neighbour = plan.tokens(len(prompt))
    pair, three = [neighbour, prompt], [prompt, neighbour, prompt]
    return [engine.in_batch(pair, new)[1], engine.in_batch(three, new)[0]]


def _alone(
    engine: EngineUnderTest, plan: PromptPlan, prompt: Ids, whole: Continuation, batched: Continuation
) -> Iterator[tuple[str, float]]:
    """With more tokens behind it; its last token alone; the next token decoded against the same one read."""
    with suppress(NotOfferedError):
        inside = engine.inside(prompt + plan.tokens(BEHIND), len(prompt) - 1)[0]
        yield "inside", gap(Continuation(whole.rows[:1], whole.tokens[:1]), inside)
    with suppress(NotOfferedError):
        last = engine.in_parts(prompt, (len(prompt) - 1,), len(whole.rows))
        yield (
            "last",
            min(gap(whole, last), gap(batched, last)),
        )  # where both differ from one piece alone, that is wrong
    said = whole.tokens[0] if len(whole.rows) > 1 else None
    if isinstance(said, int):
        decoded = Continuation(whole.rows[1:2], whole.tokens[1:2])
        yield "decoded", gap(decoded, engine.whole((*prompt, said), 1))
