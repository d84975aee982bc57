"""Train one row of a recipe, measure it, and keep what a table needs in one small file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..corpus import Corpus
from ..records import Finding, dump_json, read_json, write_atomic
from ..runner import read_run
from ..statistics import analyse
from .answerers import local
from .measure import CONTROL_FOLD, DEMO_CONTEXTS, DEMO_PROTOCOLS, DEMO_SEED, measure
from .watch import watcher

if TYPE_CHECKING:
    from ..training import Progress, Training

LOOKS = 20
FINAL_WINDOWS = 512
KEPT = {
    "accuracy": ("mean_accuracy", "worst_residue", "phase_sd", "split_half_gap", "period", "phase_rate"),
    "logprob": ("phase_sd", "period"),  # where every answer is right, only this can still show a phase
}


def run_row(
    name: str,
    settings: Training,
    corpus: Corpus | None,
    out: Path,
    keep: Path,
    *,
    report: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Train, measure under both paddings, and write the summary; each part resumes, and what is kept stays.

    The control is folded by every stride that the table has, which its findings name.

    Args:
        name: of the row.
        settings: of the row, seed included.
        corpus: the text of the mixture.
        out: folder of the run.
        keep: where the summary goes.
        report: told the progress of training.

    Returns:
        the summary: `row`, `seed`, `settings`, `tokens`, `minutes`, `parameters`, `held_out`, `curve` and, per
        protocol, findings of accuracy, and of log-probability what a control needs.
    """
    if keep.exists():
        found: dict[str, Any] = read_json(keep)
        return found
    from ..training import held_out_loss, train

    watch_every = max(1, settings.steps // LOOKS)
    done = train(
        settings,
        out,
        corpus=corpus,
        every=watch_every,
        watch=watcher(settings, corpus),
        watch_every=watch_every,
        report=report,
    )
    from ..models import CompressedQwen3ForCausalLM

    model = CompressedQwen3ForCausalLM.from_pretrained(out)  # in evaluation mode
    summary: dict[str, Any] = {
        "row": name,
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json", exclude={"task": {"vocabulary"}}),
        "tokens": done.tokens,
        "minutes": round(done.seconds / 60, 1),
        "pairs": done.pairs,
        "parameters": sum(param.numel() for param in model.parameters()),
    }
    if settings.text is not None and corpus is not None:
        summary["held_out"] = held_out_loss(model, corpus, settings.text.tokens, FINAL_WINDOWS)
    if settings.task is not None:
        write_atomic(
            out / "card.json",
            dump_json(
                {"pairs": settings.max_pairs, "vocabulary": settings.task.vocabulary.model_dump(mode="json")}
            ),
        )
        summary |= _measured(settings, out)
    summary["curve"] = [_short(json.loads(line)) for line in (out / "curve.jsonl").read_text().splitlines()]
    write_atomic(keep, dump_json(summary))
    return summary


def _measured(settings: Training, out: Path) -> dict[str, Any]:
    """Findings per protocol, on records that were not trained on."""
    measure(local([str(out)]), DEMO_PROTOCOLS, out / "phase", seed=DEMO_SEED, contexts=DEMO_CONTEXTS)
    stride = settings.compression.stride if settings.compression else None
    found: dict[str, Any] = {}
    for arm, observations in read_run(out / "phase").observations.items():
        findings = analyse(
            observations,
            stride=stride,
            fold=stride or CONTROL_FOLD,
            rng=np.random.default_rng(DEMO_SEED),
        )
        found[arm.rpartition("/")[2]] = _kept(findings)
    return found


def _kept(findings: list[Finding]) -> list[dict[str, Any]]:
    return [
        finding.model_dump(mode="json", exclude_defaults=True)
        for finding in findings
        if finding.name in KEPT.get(finding.outcome, ())
    ]


def _short(value: Any) -> Any:
    """A look with as many digits as its noise deserves."""
    if isinstance(value, dict):
        return {name: _short(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_short(inner) for inner in value]
    return round(value, 4) if isinstance(value, float) else value
