"""Measure models under the protocols of the catalog; the demo; a trained checkpoint's card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from .. import zoo
from ..catalog import BACKENDS, PROTOCOLS
from ..corpus import Corpus
from ..engines import Engine
from ..errors import UsageError
from ..protocols import PaddingSweep, Protocol
from ..records import Finding, dump_json, read_json, write_atomic
from ..runner import Arm, Report, read_run, run
from ..statistics import analyse
from .answerers import LONGEST_PROMPT, ROOM, Answerer, local

DEMO_PROTOCOLS = ("prefix", "in_sequence")
DEMO_SEED = 0
DEMO_CONTEXTS = 72  # three full rounds of the 24 offsets
DEFAULT_PAIRS = 64
TOKENS_PER_PAIR = 8  # 16K pairs in 128K tokens
CONTROL_FOLD = 24
CARD_WINDOWS = 512  # of held-out text


def arms_of(answerers: Sequence[Answerer], protocols: Sequence[str], **settings: Any) -> list[Arm]:
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
    trained = min(int(answerer.card().get("pairs", DEFAULT_PAIRS)) for answerer in answerers)
    return [
        Arm(
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
        **settings: as for `arms_of`.

    Raises:
        UsageError: for unknown names or settings that do not fit.
    """
    run(arms_of(answerers, protocols, **settings), out, seed, report, engine)


def demo(out: Path, *, seed: int = DEMO_SEED, report: Report = lambda done, total: None) -> None:
    """Measure the models that ship with the package for it under both paddings of key-value retrieval."""
    measure(
        local(zoo.names(demo=True)), DEMO_PROTOCOLS, out, seed=seed, report=report, contexts=DEMO_CONTEXTS
    )


def write_card(
    folder: Path,
    *,
    command: str,
    corpus: Corpus | None = None,
    device: str = "cpu",
    measured: bool = True,
    report: Report = lambda done, total: None,
) -> dict[str, Any]:
    """Measure a trained checkpoint and write its card.json: how it was made, what it recalls, how it reads text.

    Args:
        folder: a finished run of `phasescope train`.
        command: the command that trains it.
        corpus: the text that it was trained on, where there was any.
        device: where it is measured.
        measured: False only says how it was made.
        report: told the trials that are done, and all.

    Returns:
        the card; without what the model was not trained on: `measured` for records, `text` for text.
    """
    settings, state = read_json(folder / "training.json"), read_json(folder / "state" / "state.json")
    task, start = settings["task"], settings.get("start")
    card = {
        "command": command,
        "seed": settings["seed"],
        "compression": settings["compression"],
        "kv_heads": settings["kv_heads"],
        "steps": state["step"],
        "tokens": state["tokens"],
        "minutes": round(state["seconds"] / 60, 1),
    }
    if start is not None:
        card["start"] = start["weights"]
    if task is not None:
        card |= {
            "loss": round(state["loss"], 4),
            "accuracy": round(state["accuracy"], 4),
            "pairs": state["pairs"],
            "vocabulary": task["vocabulary"],
        }
    if corpus is not None:
        card["text"] = {"corpus": corpus.facts.digest}
    write_atomic(folder / "card.json", dump_json(card))
    if measured and corpus is not None:
        card["text"] |= _read_text(folder, corpus, settings["text"]["tokens"], device)
    if measured and task is not None:
        card["measured"] = _recalled(folder, card["compression"], device, report)
    write_atomic(folder / "card.json", dump_json(card))
    return card


def _read_text(folder: Path, corpus: Corpus, tokens: int, device: str) -> dict[str, Any]:
    """Loss on held-out text, in nats: per token, and per byte, which compares tokenizers."""
    from ..training import held_out_loss  # needs torch

    model = BACKENDS.load("transformers").load(folder, device=device).model
    loss, facts = held_out_loss(model, corpus, tokens, CARD_WINDOWS), corpus.facts
    return {
        "window": tokens,
        "windows": len(corpus.spread("held_out", CARD_WINDOWS, tokens)),
        "nats_per_token": round(loss, 4),
        "nats_per_byte": round(loss * facts.tokens["held_out"] / facts.bytes["held_out"], 4),
    }


def _recalled(folder: Path, plan: dict[str, Any] | None, device: str, report: Report) -> dict[str, Any]:
    """Recall by phase under both paddings."""
    measure(
        local([str(folder)], loading={"device": device}),
        DEMO_PROTOCOLS,
        folder / "phase",
        seed=DEMO_SEED,
        report=report,
        contexts=DEMO_CONTEXTS,
    )
    measured = {}
    for arm, observations in read_run(folder / "phase").observations.items():
        findings = analyse(
            observations,
            stride=plan["stride"] if plan else None,
            fold=plan["stride"] if plan else CONTROL_FOLD,
            rng=np.random.default_rng(DEMO_SEED),
        )
        measured[arm.rpartition("/")[2]] = _summary(findings)
    return measured


def _summary(findings: Sequence[Finding]) -> dict[str, Any]:
    """What a card keeps of the findings of one protocol."""
    accuracy = [finding for finding in findings if finding.outcome == "accuracy"]
    named = {finding.name: finding for finding in accuracy}
    return {
        "contexts": named["mean_accuracy"].n_clusters,
        "mean_accuracy": named["mean_accuracy"].value,
        "phase_sd": named["phase_sd"].value,
        "low": named["phase_sd"].low,
        "high": named["phase_sd"].high,
        "folded_by": named["phase_sd"].stride,
        "period": named["period"].value,
        "phases": [finding.value for finding in accuracy if finding.name == "phase_rate"],
    }


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
        longest = answerer.longest_prompt()
        tokens = settings.setdefault("prompt_tokens", min(LONGEST_PROMPT, longest - ROOM))
        if tokens > longest:
            raise UsageError(
                f"prompt_tokens is {tokens}; by its config.json {answerer.name} reads at most {longest} tokens"
            )
        settings.setdefault("pairs", max(1, tokens // TOKENS_PER_PAIR))
    return kind(**settings)
