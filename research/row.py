"""Train one row of a recipe, measure it, and keep what a table needs in one small file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phasescope.files import dump_json, read_json, write_atomic
from phasescope.records import Finding
from phasescope.text.corpus import Corpus
from phasescope.verbs.card import write_card
from phasescope.verbs.watch import watcher

if TYPE_CHECKING:
    from phasescope.training import Progress, Training

LOOKS = 20
KEPT = {
    "accuracy": (
        *("mean_accuracy", "worst_residue", "phase_sd", "split_half_gap", "period", "phase_rate"),
        *("inside_gap", "boundary_loss"),
    ),
    "logprob": ("phase_sd", "period"),  # where every answer is right, only this can still show a phase
}


def run_row(
    name: str,
    settings: Training,
    corpus: Corpus | None,
    out: Path,
    keep: Path,
    *,
    command: str,
    report: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, Any]:
    """Train, write the card, and keep a summary; each part resumes, and what is kept stays.

    Args:
        name: of the row.
        settings: of the row, seed included.
        corpus: the text of the mixture.
        out: folder of the run.
        keep: where the summary goes.
        command: goes into the card.
        report: told the progress of training.

    Returns:
        the summary: `row`, `seed`, `settings`, `tokens`, `minutes`, `pairs`, `held_out` (nats per token), `curve` (the
        looks) and, per protocol, findings of accuracy, and of log-probability what a control needs.
    """
    if keep.exists():
        found: dict[str, Any] = read_json(keep)
        return found
    from phasescope.training import train

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
    carded = write_card(out, command=command, corpus=corpus)
    summary: dict[str, Any] = {
        "row": name,
        "seed": settings.seed,
        "settings": settings.model_dump(mode="json", exclude={"task": {"vocabulary"}}),
        "tokens": done.tokens,
        "minutes": carded.card["minutes"],
        "pairs": done.pairs,
        "held_out": carded.card.get("text", {}).get("nats_per_token"),
        "curve": [_short(json.loads(line)) for line in _looks(out)],
        **{protocol: _kept(findings) for protocol, findings in carded.findings.items()},
    }
    write_atomic(keep, dump_json(summary))
    return summary


def _looks(out: Path) -> list[str]:
    """The looks on the way; none in a run of `phasescope train` that took none."""
    path = out / "curve.jsonl"
    return path.read_text().splitlines() if path.exists() else []


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
