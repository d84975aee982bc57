"""The experiments that the command line names: measure models, run the demo, write a checkpoint's card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from . import natural, zoo
from .backends.transformers import TransformersBackend
from .catalog import PROTOCOLS
from .errors import BrokenRecordError, UsageError
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
LONGEST_PROMPT = 131072
TOKENS_PER_PAIR = 8  # 16K pairs in 128K tokens
ROOM = 32  # tokens left for the answer


def checkpoint(model: str) -> tuple[str, Path]:
    """A model's name and folder, from a zoo name, the natural model's name or a path.

    Raises:
        UsageError: if it is neither.
    """
    if model in zoo.names():
        return model, zoo.folder(model)
    if model == natural.NAME:
        return model, natural.folder()
    folder = Path(model)
    if not folder.is_dir():
        known = ", ".join([*zoo.names(), natural.NAME])
        raise UsageError(f"no model {model!r}: neither a folder nor one of the zoo: {known}")
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
    tokenizer: Path | None = None,
    **sizes: Any,
) -> None:
    """Measure every model under every protocol, in one run folder; an interrupted run goes on.

    Args:
        models: zoo names or checkpoint folders; an uncompressed one among them is the control.
        protocols: names of the protocol catalog.
        out: the run folder.
        seed: of every draw.
        pairs: records in a context; by default what the models' cards say they were trained on (the fewest,
            where they differ), 64 for models without a card; in text one per 8 prompt tokens.
        report: told the trials that are done, and all.
        device: where the models run.
        trust_remote_code: allow a checkpoint to run code of its own.
        tokenizer: a tokenizer.json, or a folder with one, for protocols of text; by default the models' own.
        **sizes: further settings of the protocols (contexts, questions, residues, margin, prompt_tokens, …);
            each takes those it has. None is the protocol's own default.

    Raises:
        UsageError: for unknown names or settings that do not fit.
    """
    checkpoints = [checkpoint(model) for model in models]
    kinds = {name: PROTOCOLS.load(name) for name in protocols}
    given = {name: value for name, value in {**sizes, "pairs": pairs}.items() if value is not None}
    _refuse_unknown(given, kinds)
    trained = min(trained_pairs(folder) for _, folder in checkpoints)
    arms = []
    for name, folder in checkpoints:
        asked = {
            label: _protocol(kind, folder, given, trained=trained, tokenizer=tokenizer)
            for label, kind in kinds.items()
        }
        backend = TransformersBackend.load(
            folder, name=name, device=device, trust_remote_code=trust_remote_code
        )
        arms += [
            Arm(name if len(asked) == 1 else f"{name}/{label}", backend, protocol)
            for label, protocol in asked.items()
        ]
    run(arms, out, seed, report)


def _refuse_unknown(given: dict[str, Any], kinds: dict[str, type[Protocol]]) -> None:
    """Refuse a setting that none of the protocols has."""
    known = {field.name for kind in kinds.values() for field in fields(kind)}
    for name in given:
        if name not in known:
            raise UsageError(
                f"{name} is no setting of {', '.join(kinds)}, which know: {', '.join(sorted(known - {'tokenizer'}))}"
            )


def _protocol(
    kind: type[Protocol], folder: Path, given: dict[str, Any], *, trained: int, tokenizer: Path | None
) -> Protocol:
    """A protocol with the settings that it has; of text with the tokenizer and the reach of the model."""
    own = {field.name for field in fields(kind)}
    settings = {name: value for name, value in given.items() if name in own}
    if kind.synthetic:
        return kind(**{"pairs": trained, **settings} if "pairs" in own else settings)
    settings["tokenizer"] = Tokenizer.load(tokenizer or folder)
    if "prompt_tokens" in own:
        longest = reach(folder)
        tokens = settings.setdefault("prompt_tokens", min(LONGEST_PROMPT, longest - ROOM))
        if tokens > longest:
            raise UsageError(
                f"prompt_tokens is {tokens}; by its config.json {folder.name} reads at most {longest} tokens"
            )
        settings.setdefault("pairs", max(1, tokens // TOKENS_PER_PAIR))
    return kind(**settings)


def reach(folder: Path) -> int:
    """The longest prompt that a checkpoint's config allows; the default length and its room where it says none."""
    config = read_json(folder / "config.json")
    nested = config.get("text_config", config) if isinstance(config, dict) else config
    if not isinstance(nested, dict):
        raise BrokenRecordError(f"{folder / 'config.json'} holds no model's settings; copy it again")
    longest = nested.get("max_position_embeddings")
    return longest if isinstance(longest, int) and longest > ROOM else LONGEST_PROMPT + ROOM


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
