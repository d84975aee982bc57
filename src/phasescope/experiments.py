"""The experiments that the command line names: measure models, run the demo, write a checkpoint's card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import zoo
from .backends import BackendSpec
from .catalog import PROTOCOLS
from .engines import Engine
from .errors import UsageError
from .mitigations import Combine, Ways, arms, lines, outcomes, read_profile, write_outcomes
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
    loading: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
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
        loading: how models are loaded: arguments of `TransformersBackend.load`.
        engine: who answers; by default this process.
        **sizes: further settings of the protocols: contexts, questions, residues, margin.

    Raises:
        UsageError: for unknown names or settings that do not fit.
    """
    arms = model_arms(models, protocols, pairs=pairs, loading=loading, **sizes)
    run(arms, out, seed, report, engine)


def model_arms(
    models: Sequence[str],
    protocols: Sequence[str],
    *,
    pairs: int | None = None,
    loading: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> list[Arm]:
    """The arms that `measure` runs: every model under every protocol, none of them loaded."""
    checkpoints = [checkpoint(model) for model in models]
    sizes["pairs"] = min(trained_pairs(folder) for _, folder in checkpoints) if pairs is None else pairs
    asked = {name: PROTOCOLS.load(name)(**sizes) for name in protocols}
    arms = []
    for name, folder in checkpoints:
        backend = BackendSpec(
            "transformers", {**(loading or {}), "path": str(folder.resolve()), "name": name}
        )
        arms += [
            Arm(name if len(asked) == 1 else f"{name}/{label}", backend, protocol)
            for label, protocol in asked.items()
        ]
    return arms


def mitigate(
    folder: Path,
    *,
    arm: str | None = None,
    out: Path | None = None,
    model: str | None = None,
    shifts: tuple[int, ...] | None = None,
    combine: Combine = "mean",
    below: float = 2.0,
    limit: int | None = None,
    contexts: int = 48,
    seed: int | None = None,
    anyway: bool = False,
    device: str = "cpu",
    report: Report = lambda done, total: None,
) -> list[str]:
    """Measure votes and pads on a model that a run has measured, with prompts that the run has not seen.

    Args:
        folder: a run that `report` has read, so that it holds profile.json.
        arm: whose profile, where several are phase-sensitive.
        out: the run folder of the trial; by default `mitigate` in the run's own.
        model: the checkpoint; by default what the run names.
        shifts: numbers of pads of the vote's askings; 0 and half a stride by default.
        combine: how the vote chooses.
        below: margin in nats under which the adaptive vote asks again.
        limit: the most pads per prompt.
        contexts: contexts of every arm.
        seed: of the prompts; by default one more than the run's.
        anyway: try it on a model without a phase effect too.
        device: where the model runs.
        report: told the trials that are done, and all.

    Returns:
        lines for a person.

    Raises:
        UsageError: if the run has no such profile, or the seed is the run's own.
    """
    profile = read_profile(folder, arm)
    described = read_run(folder).description
    own = next((one for one in described["arms"] if one["name"] == profile.arm), None)
    if own is None:
        raise UsageError(
            f"{folder} has no arm {profile.arm!r}; give the run that the profile was measured in"
        )
    fresh = described["seed"] + 1 if seed is None else seed
    if fresh == described["seed"]:
        raise UsageError(f"seed {fresh} gives the prompts that the profile was measured on; give another")
    if not profile.sensitive and not anyway:
        return [
            f"{profile.arm}: no phase effect was found, so there is nothing to mend (--anyway tries all the same)"
        ]
    sizes = {**own["protocol"]["settings"], "contexts": contexts}
    protocol = PROTOCOLS.load(own["protocol"]["name"])(**sizes)
    name, checkpoint_folder = checkpoint(model or own["backend"].get("path") or own["backend"]["model"])
    settings = {"path": str(checkpoint_folder.resolve()), "name": name, "device": device}
    backend = BackendSpec("transformers", settings).load()
    ways = Ways(shifts or (0, max(1, profile.stride // 2)), combine, below, limit)
    target = folder / "mitigate" if out is None else out
    run(arms(backend, protocol, profile, ways), target, fresh, report)
    found = outcomes(target, profile, fresh)
    write_outcomes(target / "mitigation.json", profile, found)
    return [*lines(profile, found), f"wrote {target / 'mitigation.json'}"]


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
