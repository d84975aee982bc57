"""The experiments that the command line names: measure models and servers, run the demo, write a checkpoint's card.

Torch is imported only by what runs a model on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from . import zoo
from .backends import Backend
from .backends.openai import OpenAIBackend
from .backends.openai_client import Limits
from .catalog import BACKENDS, PROTOCOLS
from .errors import UsageError
from .grid import WindowGrid
from .protocols import Protocol
from .records import Finding, dump_json, read_json, write_atomic
from .runner import Arm, read_run, run
from .statistics import analyse
from .tokens import Tokenizer

Report = Callable[[int, int], None]
DEMO_PROTOCOLS = ("prefix", "in_sequence")
DEMO_SEED = 0
DEMO_CONTEXTS = 72  # three full rounds of the 24 offsets
DEFAULT_PAIRS = 64
CONTROL_FOLD = 24


def checkpoint(model: str) -> tuple[str, Path]:
    """A model's name and folder, from a zoo name or a path.

    Raises:
        UsageError: if it is neither.
    """
    if model in zoo.names():
        return model, zoo.folder(model)
    folder = Path(model)
    if not folder.is_dir():
        raise UsageError(f"no model {model!r}: neither a folder nor one of the zoo: {', '.join(zoo.names())}")
    return folder.resolve().name, folder


def measure(
    models: Sequence[str],
    protocols: Sequence[str],
    out: Path,
    *,
    seed: int,
    pairs: int | None = None,
    report: Report = lambda done, total: None,
    device: str = "cpu",
    trust_remote_code: bool = False,
    **sizes: Any,
) -> None:
    """Measure every model under every protocol, in one run folder; an interrupted run goes on.

    Args:
        models: zoo names or checkpoint folders; an uncompressed one among them is the control.
        protocols: names of the protocol catalog.
        out: the run folder.
        seed: of every draw.
        pairs: records in a context; by default what the models' cards say they were trained on (the fewest,
            where they differ), 64 for models without a card.
        report: told the trials that are done, and all.
        device: where the models run.
        trust_remote_code: allow a checkpoint to run code of its own.
        **sizes: further settings of the protocols: contexts, questions, residues, margin.

    Raises:
        UsageError: for unknown names or settings that do not fit.
    """
    checkpoints = [checkpoint(model) for model in models]
    sizes["pairs"] = min(trained_pairs(folder) for _, folder in checkpoints) if pairs is None else pairs
    asked = {name: protocol(name, None, **sizes) for name in protocols}
    load = BACKENDS.load("transformers").load
    backends = [
        load(folder, name=name, device=device, trust_remote_code=trust_remote_code)
        for name, folder in checkpoints
    ]
    run(arms_of(backends, asked), out, seed, report)


def measure_server(
    base_url: str,
    models: Sequence[str],
    protocols: Sequence[str],
    out: Path,
    *,
    seed: int,
    tokenizer: Path | None = None,
    pairs: int | None = None,
    report: Report = lambda done, total: None,
    limits: Limits | None = None,
    grids: Sequence[WindowGrid] | None = None,
    sizes: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Measure models behind an OpenAI-compatible server; an interrupted run goes on.

    Args:
        base_url: where the server is.
        models: their names there; none for the only one that it has.
        protocols: names of the protocol catalog.
        out: the run folder.
        seed: of every draw.
        tokenizer: folder of the models' tokenizer.
        pairs: records in a context; 64 by default.
        report: told the trials that are done, and all.
        limits: how fast the server is asked, and for how long.
        grids: the window grids of the models' KV caches; none for a control, unknown by default.
        sizes: further settings of the protocols: contexts, questions, residues, margin.
        **settings: further settings of `OpenAIBackend`.

    Raises:
        UsageError: for unknown names, settings that do not fit, or a server that cannot be asked so.
        ServerError: if the server is not reached, or stops answering.
    """
    own = None if tokenizer is None else Tokenizer.load(tokenizer)
    given = {**(sizes or {}), "pairs": DEFAULT_PAIRS if pairs is None else pairs}
    asked = {name: protocol(name, own, **given) for name in protocols}
    names: Sequence[str | None] = models or (None,)
    backends = [OpenAIBackend(base_url, name, own, limits=limits, grids=grids, **settings) for name in names]
    run(arms_of(backends, asked), out, seed, report)


def protocol(name: str, tokenizer: Tokenizer | None, **settings: Any) -> Protocol:
    """A protocol of the catalog; one of real text is given the tokenizer.

    Raises:
        UsageError: for an unknown name, settings that do not fit, or a text without a tokenizer.
    """
    kind: type[Protocol] = PROTOCOLS.load(name)
    if "tokenizer" in {field.name for field in fields(kind)}:
        if tokenizer is None:
            raise UsageError(f"{name} asks about real text; name a tokenizer's folder with --tokenizer")
        settings["tokenizer"] = tokenizer
    return kind(**settings)


def arms_of(backends: Sequence[Backend], protocols: dict[str, Protocol]) -> list[Arm]:
    """Every backend under every protocol, named by the backend, and by the protocol where there are several."""
    return [
        Arm(backend.name if len(protocols) == 1 else f"{backend.name}/{label}", backend, asked)
        for backend in backends
        for label, asked in protocols.items()
    ]


def trained_pairs(folder: Path) -> int:
    """How many records a checkpoint's card says it was trained on; 64 without a card."""
    path = folder / "card.json"
    return int(read_json(path)["pairs"]) if path.exists() else DEFAULT_PAIRS


def demo(out: Path, *, seed: int = DEMO_SEED, report: Report = lambda done, total: None) -> None:
    """Measure every model that ships with the package under both paddings of key-value retrieval."""
    measure(zoo.names(), DEMO_PROTOCOLS, out, seed=seed, report=report, contexts=DEMO_CONTEXTS)


def write_card(folder: Path, *, command: str, report: Report = lambda done, total: None) -> dict[str, Any]:
    """Measure a trained checkpoint and write its card.json: how it was made, and what it recalls.

    Args:
        folder: a finished run of `phasescope train`.
        command: the command that trains it.
        report: told the trials that are done, and all.

    Returns:
        the card.
    """
    settings, state = read_json(folder / "training.json"), read_json(folder / "state" / "state.json")
    card = {
        "command": command,
        "seed": settings["seed"],
        "compression": settings["compression"],
        "kv_heads": settings["kv_heads"],
        "steps": state["step"],
        "tokens": state["tokens"],
        "minutes": round(state["seconds"] / 60, 1),
        "loss": round(state["loss"], 4),
        "accuracy": round(state["accuracy"], 4),
        "pairs": state["pairs"],
        "vocabulary": settings["task"]["vocabulary"],
    }
    write_atomic(folder / "card.json", dump_json(card))
    measure(
        [str(folder)], DEMO_PROTOCOLS, folder / "phase", seed=DEMO_SEED, report=report, contexts=DEMO_CONTEXTS
    )
    plan, measured = card["compression"], {}
    for arm, observations in read_run(folder / "phase").observations.items():
        findings = analyse(
            observations,
            stride=plan and plan["stride"],
            fold=plan["stride"] if plan else CONTROL_FOLD,
            rng=np.random.default_rng(DEMO_SEED),
        )
        measured[arm.rpartition("/")[2]] = _summary(findings)
    card["measured"] = measured
    write_atomic(folder / "card.json", dump_json(card))
    return card


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
