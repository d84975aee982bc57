"""Measure models under the protocols of the catalog, and the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..catalog import PROTOCOLS
from ..checkpoints import zoo
from ..checkpoints.resolve import LONGEST_PROMPT, ROOM
from ..errors import UsageError
from ..protocols import PaddingSweep, Protocol
from ..running import Engine
from ..running.runner import Condition, Report, run
from .answerers import Answerer, local

DEMO_PROTOCOLS = ("prefix", "in_sequence")
DEMO_SEED = 0
DEMO_CONTEXTS = 72  # three full rounds of the 24 offsets
DEFAULT_PAIRS = 64
TOKENS_PER_PAIR = 8  # 16K pairs in 128K tokens


def conditions_of(
    answerers: Sequence[Answerer], protocols: Sequence[str], **settings: Any
) -> list[Condition]:
    """Every model under every protocol; none of them is loaded yet.

    Args:
        answerers: who is asked; a model without a grid among them is the control.
        protocols: names of the protocol catalog.
        **settings: settings of the protocols (pairs, contexts, questions, residues, prompt_tokens, …); each takes
            those that it has, and None is the protocol's own default. `pairs` are by default what the models'
            cards say they were trained on (the fewest, where they differ), 64 without a card, and in real text
            one per 8 prompt tokens.

    Raises:
        UsageError: for unknown names or settings that do not fit.
    """
    if PaddingSweep.name in protocols:
        raise UsageError(
            "protocol 'sweep' asks prompts of your own; use phasescope sweep PROMPT.txt --model …"
        )
    kinds = {name: PROTOCOLS.load(name) for name in protocols}
    given = {name: value for name, value in settings.items() if value is not None}
    _refuse_unknown(given, kinds)
    trained = min(answerer.pairs or DEFAULT_PAIRS for answerer in answerers)
    return [
        Condition(
            answerer.name if len(kinds) == 1 else f"{answerer.name}/{label}",
            answerer.backend,
            _protocol(kind, answerer, given, trained),
        )
        for answerer in answerers
        for label, kind in kinds.items()
    ]


def measure(
    answerers: Sequence[Answerer],
    protocols: Sequence[str],
    out: Path,
    *,
    seed: int,
    report: Report = lambda done, total: None,
    engine: Engine | None = None,
    **settings: Any,
) -> None:
    """Measure every model under every protocol, in one run folder; an interrupted run goes on.

    Args:
        answerers: who is asked.
        protocols: names of the protocol catalog.
        out: the run folder.
        seed: of every draw.
        report: told the trials that are done, and all.
        engine: who runs the models; by default this process.
        **settings: as for `conditions_of`.

    Raises:
        UsageError: for unknown names or settings that do not fit.
    """
    run(conditions_of(answerers, protocols, **settings), out, seed, report, engine)


def demo(out: Path, *, seed: int = DEMO_SEED, report: Report = lambda done, total: None) -> None:
    """Measure the models that ship with the package for it under both paddings of key-value retrieval."""
    measure(
        local(zoo.names(demo=True)), DEMO_PROTOCOLS, out, seed=seed, report=report, contexts=DEMO_CONTEXTS
    )


def _refuse_unknown(given: dict[str, Any], kinds: dict[str, type[Protocol]]) -> None:
    """Refuse a setting that none of the protocols has."""
    known = {field.name for kind in kinds.values() for field in fields(kind)}
    for name in given:
        if name not in known:
            raise UsageError(
                f"{name} is no setting of {', '.join(kinds)}, which know: {', '.join(sorted(known - {'tokenizer'}))}"
            )


def _protocol(kind: type[Protocol], answerer: Answerer, given: dict[str, Any], trained: int) -> Protocol:
    """A protocol with the settings that it has; of text with the tokenizer and the reach of the model."""
    own = {field.name for field in fields(kind)}
    settings = {name: value for name, value in given.items() if name in own}
    if kind.synthetic:
        return kind(**{"pairs": trained, **settings} if "pairs" in own else settings)
    settings["tokenizer"] = answerer.read_tokenizer()
    if "prompt_tokens" in own:
        longest = answerer.longest_prompt
        tokens = settings.setdefault("prompt_tokens", min(LONGEST_PROMPT, longest - ROOM))
        if tokens > longest:
            raise UsageError(
                f"prompt_tokens is {tokens}; by its config.json {answerer.name} reads at most {longest} tokens"
            )
        settings.setdefault("pairs", max(1, tokens // TOKENS_PER_PAIR))
    return kind(**settings)
