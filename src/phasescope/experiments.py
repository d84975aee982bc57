"""The experiments that the command line names: measure models, run the demo, write a checkpoint's card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import check as checks
from . import zoo
from .backends.transformers import TransformersBackend
from .catalog import PROTOCOLS
from .check.effect import read_effect
from .check.grids import ENGINE_STRIDES, strides_of
from .check.local import LocalSubject, require_dtype
from .errors import UsageError
from .records import Finding, dump_json, read_json, write_atomic
from .runner import Arm, read_run, run
from .statistics import analyse

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
    asked = {name: PROTOCOLS.load(name)(**sizes) for name in protocols}
    arms = []
    for name, folder in checkpoints:
        backend = TransformersBackend.load(
            folder, name=name, device=device, trust_remote_code=trust_remote_code
        )
        arms += [
            Arm(name if len(asked) == 1 else f"{name}/{label}", backend, protocol)
            for label, protocol in asked.items()
        ]
    run(arms, out, seed, report)


def trained_pairs(folder: Path) -> int:
    """How many records a checkpoint's card says it was trained on; 64 without a card."""
    path = folder / "card.json"
    return int(read_json(path)["pairs"]) if path.exists() else DEFAULT_PAIRS


def demo(out: Path, *, seed: int = DEMO_SEED, report: Report = lambda done, total: None) -> None:
    """Measure every model that ships with the package under both paddings of key-value retrieval."""
    measure(zoo.names(), DEMO_PROTOCOLS, out, seed=seed, report=report, contexts=DEMO_CONTEXTS)


def check(
    model: str,
    *,
    strides: Sequence[int] = (),
    run: Path | None = None,
    arm: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    **settings: Any,
) -> checks.Verdict:
    """Hold the engine that runs a local model to every invariance: `phasescope check`.

    Args:
        model: a zoo name or a checkpoint folder.
        strides: beside those of the model's own grids, and pages of 16 and 64 tokens.
        run: a run of `measure` with the same model.
        arm: which arm of it.
        seed: of every draw.
        device: where the model runs.
        dtype: a torch dtype by name; `auto` keeps the checkpoint's own.
        trust_remote_code: allow a checkpoint to run code of its own.
        **settings: as `phasescope.check.check` has them.

    Raises:
        UsageError: for a model that cannot be loaded, or settings that do not fit.
    """
    require_dtype(dtype)
    name, folder = checkpoint(model)
    backend = TransformersBackend.load(
        folder, name=name, device=device, dtype=dtype, trust_remote_code=trust_remote_code
    )
    digest = backend.describe()["digest"]
    effect = None if run is None else read_effect(run, arm=arm, digest=digest, seed=seed)
    subject = LocalSubject(backend.model, name=name, facts={"digest": digest})
    around = [*strides, *strides_of(folder), *ENGINE_STRIDES]
    return checks.check(subject, strides=around, seed=seed, effect=effect, **settings)


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
