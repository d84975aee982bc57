"""Sweep the padding of a user's own prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..protocols import PaddingSweep, Prompt
from ..running.runner import Condition
from .answerers import Answerer


def sweep_conditions(
    answerers: Sequence[Answerer],
    prompts: Sequence[Prompt],
    *,
    announce: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> list[Condition]:
    """More and more padding in a user's prompts, for each model; nothing is drawn, so the seed does not matter.

    Args:
        answerers: who is asked.
        prompts: what is asked.
        announce: told, before any model is loaded, what the sweep will cost and which padding cannot be used.
        **settings: further settings of `PaddingSweep`.

    Raises:
        UsageError: for prompts and settings that cannot be asked as they say.
    """
    text = any(not prompt.prompt_ids for prompt in prompts) or settings.get("scorer") or settings.get("chat")
    conditions = []
    for answerer in answerers:
        own = answerer.read_tokenizer() if text else None
        protocol = PaddingSweep(prompts=tuple(prompts), tokenizer=own, **settings)
        for line in told(answerer.name, protocol):
            announce(line)
        conditions.append(Condition(answerer.name, answerer.backend, protocol))
    return conditions


def told(model: str, protocol: PaddingSweep) -> Iterator[str]:
    """What a sweep will cost, and which padding families were dropped, in lines."""
    plan = protocol.plan()
    generated = plan.trials * (protocol.new_tokens if protocol.scorer else 1)
    yield f"{model}: {plan.trials:,} prompts, {plan.prompt_tokens:,} tokens to read, up to {generated:,} to generate"
    for family, why in protocol.dropped.items():
        yield f"{model}: padding {family} is left out: {why}"
    for family, unit in protocol.repeating.items():
        yield f"{model}: padding {family} repeats every {unit} tokens, so that it has a period of its own"
