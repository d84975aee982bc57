"""Sweep the padding of a user's own prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..protocols import PaddingSweep, Prompt
from ..protocols.padding_sweep import parse_lengths
from ..running.runner import Condition, Report, run
from ..runs import Run, read_run
from ..text.prompts import read_prompts
from .answerers import Answerer, answerers_of


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


def sweep(
    prompts: str | Path | Sequence[str | Path | Prompt],
    models: Any,
    *,
    out: str | Path,
    control: Any = (),
    expected: str | None = None,
    rivals: Sequence[str] = (),
    lengths: str = "0:24",
    report: Report = lambda done, total: None,
    loading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Ask your own prompts with more and more pad tokens put in; then `report` the run.

    Args:
        prompts: text files, .jsonl files, or `Prompt`s.
        models: as in `measure`.
        out: the run folder.
        control: models that have no grid by your word.
        expected: the continuation that is right, for prompts that do not say so.
        rivals: what it competes with.
        lengths: numbers of pad tokens: 24:40 is 24 to 39; or a list: 0,4,8.
        report: told the trials that are done, and all.
        loading: who answers, and how, as in `measure`.
        **settings: further settings of `PaddingSweep`: `families`, `placement`, `chat`, ….

    Raises:
        UsageError: for prompts and settings that cannot be asked as they say.
    """
    several = [prompts] if isinstance(prompts, str | Path) else prompts
    made = [prompt for prompt in several if isinstance(prompt, Prompt)]
    files = [Path(prompt) for prompt in several if not isinstance(prompt, Prompt)]
    read = [*made, *(read_prompts(files, expected=expected, rivals=rivals) if files else ())]
    answerers = answerers_of(models, **(loading or {}))
    if control:
        answerers += answerers_of(control, **{**(loading or {}), "control": True})
    conditions = sweep_conditions(answerers, read, lengths=parse_lengths(lengths), **settings)
    run(conditions, Path(out), 0, report)  # nothing is drawn, so any seed will do
    return read_run(Path(out))


def told(model: str, protocol: PaddingSweep) -> Iterator[str]:
    """What a sweep will cost, and which padding families were dropped, in lines."""
    plan = protocol.plan()
    generated = plan.trials * (protocol.new_tokens if protocol.scorer else 1)
    yield f"{model}: {plan.trials:,} prompts, {plan.prompt_tokens:,} tokens to read, up to {generated:,} to generate"
    for family, why in protocol.dropped.items():
        yield f"{model}: padding {family} is left out: {why}"
    for family, unit in protocol.repeating.items():
        yield f"{model}: padding {family} repeats every {unit} tokens, so that it has a period of its own"
