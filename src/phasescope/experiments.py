"""The experiments that the command line names: measure models, run the demo, write a checkpoint's card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import zoo
from .backends import Backend
from .backends.transformers import TransformersBackend
from .catalog import PROTOCOLS
from .errors import UsageError
from .protocols import PaddingSweep, Prompt
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
    if PaddingSweep.name in protocols:
        raise UsageError(
            "protocol 'sweep' asks prompts of your own; use phasescope sweep PROMPT.txt --model …"
        )
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


def sweep_backend(
    model: str, *, control: bool = False, device: str = "cpu", trust_remote_code: bool = False
) -> Backend:
    """Who answers a sweep of a local model.

    Args:
        model: a zoo name or a checkpoint folder.
        control: the user's word that it has no grid.
        device: where it runs.
        trust_remote_code: allow a checkpoint to run code of its own.
    """
    name, folder = checkpoint(model)
    known: dict[str, Any] = {"grids": []} if control else {}
    return TransformersBackend.load(
        folder, name=name, device=device, trust_remote_code=trust_remote_code, **known
    )


def sweep(
    models: Sequence[str],
    prompts: Sequence[Prompt],
    out: Path,
    *,
    controls: Sequence[str] = (),
    tokenizer: Path | None = None,
    backend: Callable[..., Backend] = sweep_backend,
    announce: Callable[[str], None] = lambda line: None,
    report: Report = lambda done, total: None,
    device: str = "cpu",
    trust_remote_code: bool = False,
    **settings: Any,
) -> None:
    """Put more and more padding into a user's prompts and log what the models make of it.

    Args:
        models: zoo names or checkpoint folders.
        prompts: what is asked.
        out: the run folder; an interrupted run goes on.
        controls: models that have no grid, by the user's word.
        tokenizer: where the tokenizer is; by default in each model's own folder.
        backend: makes the one who answers from a model's name and the options of `sweep_backend`.
        announce: told, before any model is loaded, what the sweep will cost and which padding cannot be used.
        report: told the trials that are done, and all.
        device: where the models run.
        trust_remote_code: allow a checkpoint to run code of its own.
        **settings: further settings of `PaddingSweep`.

    Raises:
        UsageError: for unknown names, or prompts and settings that cannot be asked as they say.
    """
    named = [(model, False) for model in models] + [(model, True) for model in controls]
    protocols = []
    for model, _ in named:
        place = checkpoint(model)[1] if tokenizer is None else tokenizer
        text = (
            any(not prompt.prompt_ids for prompt in prompts) or settings.get("scorer") or settings.get("chat")
        )
        own = Tokenizer.load(place) if text else None
        protocols.append(PaddingSweep(prompts=tuple(prompts), tokenizer=own, **settings))
        for line in told(model, protocols[-1]):
            announce(line)
    arms = []
    for (model, control), protocol in zip(named, protocols, strict=True):
        answers = backend(model, control=control, device=device, trust_remote_code=trust_remote_code)
        arms.append(Arm(answers.name, answers, protocol))
    run(arms, out, 0, report)  # nothing is drawn


def told(model: str, protocol: PaddingSweep) -> Iterator[str]:
    """What a sweep will cost, and which padding families were dropped, in lines."""
    plan = protocol.plan()
    generated = plan.trials * (protocol.new_tokens if protocol.scorer else 1)
    yield (
        f"{model}: {plan.trials:,} prompts, {plan.prompt_tokens:,} tokens to read, up to {generated:,} to generate"
    )
    for family, why in protocol.dropped.items():
        yield f"{model}: padding {family} is left out: {why}"
    for family, unit in protocol.repeating.items():
        yield f"{model}: padding {family} repeats every {unit} tokens, so that it has a period of its own"


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
