"""A trained checkpoint's card: how it was made, what it recalls, how it reads text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..catalog import BACKENDS
from ..errors import BrokenRecordError
from ..files import dump_json, read_record, write_atomic
from ..records import Finding
from ..running.runner import Report
from ..statistics.analyses import findings_at
from ..statistics.conditions import read_conditions
from ..text.corpus import Corpus
from .measure import DEMO_CONTEXTS, DEMO_PROTOCOLS, DEMO_SEED, measure

CARD_WINDOWS = 512  # of held-out text


@dataclass(frozen=True)
class Carded:
    """A card, and the findings of each protocol that it sums up."""

    card: dict[str, Any]
    findings: dict[str, list[Finding]]


def write_card(
    folder: Path,
    *,
    command: str,
    corpus: Corpus | None = None,
    device: str = "cpu",
    measured: bool = True,
    report: Report = lambda done, total: None,
) -> Carded:
    """Measure a trained checkpoint and write its card.json: how it was made, what it recalls, how it reads text.

    Args:
        folder: a finished run of `phasescope train`.
        command: the command that trains it.
        corpus: the text that it was trained on, where there was any.
        device: where it is measured.
        measured: False only says how it was made.
        report: called with the trials done, and all.

    Returns:
        the card, without what the model was not trained on (`measured` for records, `text` for text), and all findings
        behind it.

    Raises:
        UsageError: if the settings or the state of the run cannot be read.
        BrokenRecordError: if one of them is damaged.
    """
    from ..training.settings import State, Training  # with the models' settings

    settings = read_record(folder / "training.json", Training)
    state = read_record(folder / "state" / "state.json", State)
    task, plain = settings.task, settings.model_dump(mode="json")
    card: dict[str, Any] = {
        "command": command,
        "seed": settings.seed,
        "compression": plain["compression"],
        "kv_heads": settings.kv_heads,
        "steps": state.step,
        "tokens": state.tokens,
        "minutes": round(state.seconds / 60, 1),
    }
    if settings.start is not None:
        card["start"] = settings.start.weights
    if task is not None:
        if state.loss is None or state.accuracy is None:
            raise BrokenRecordError(
                f"{folder / 'state' / 'state.json'} has no loss or no accuracy; restore it, or train again"
            )
        card |= {
            "loss": round(state.loss, 4),
            "accuracy": round(state.accuracy, 4),
            "pairs": state.pairs,
            "vocabulary": task.asked.model_dump(mode="json"),
        }
    if corpus is not None:
        card["text"] = {"corpus": corpus.facts.digest}
    write_atomic(folder / "card.json", dump_json(card))
    if measured and corpus is not None and settings.text is not None:
        card["text"] |= _read_text(folder, corpus, settings.text.tokens, device)
    findings = {}
    if measured and task is not None:
        findings = _recalled(folder, device, report)
        card["measured"] = {protocol: _summary(found) for protocol, found in findings.items()}
    write_atomic(folder / "card.json", dump_json(card))
    return Carded(card, findings)


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


def _recalled(folder: Path, device: str, report: Report) -> dict[str, list[Finding]]:
    """Recall by phase under both paddings, on records that were not trained on."""
    measure(
        folder,
        protocol=DEMO_PROTOCOLS,
        out=folder / "phase",
        seed=DEMO_SEED,
        report=report,
        loading={"device": device},
        contexts=DEMO_CONTEXTS,
    )
    conditions, _ = read_conditions([folder / "phase"])
    return {
        condition.protocol: findings_at(condition, condition.fold, np.random.default_rng(DEMO_SEED))
        for condition in conditions
    }


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
