"""Votes and pads on a model that a run has measured."""

from __future__ import annotations

from pathlib import Path

from ..backends import loaded
from ..checkpoints.resolve import resolve_measured
from ..errors import UsageError
from ..mitigations import Combine, MitigationResult, Ways, conditions, read_profile, result_of
from ..protocols import described_protocol
from ..running.runner import Report, run
from ..runs import read_description
from .answerers import local


def mitigate(
    folder: str | Path,
    *,
    condition: str | None = None,
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
) -> MitigationResult:
    """Measure votes and pads on a model that a run has measured, with prompts that the run has not seen.

    Args:
        folder: a run that `report` has read, so that it holds profile.json.
        condition: whose profile, where several are phase-sensitive.
        out: the run folder of the trial; by default `mitigate` in the run's own.
        model: the checkpoint; by default what the run names.
        shifts: numbers of pads of the vote's askings; 0 and half a stride by default.
        combine: how the vote chooses.
        below: margin in nats under which the adaptive vote asks again.
        limit: the most pads per prompt.
        contexts: contexts of every condition.
        seed: of the prompts; by default one more than the run's.
        anyway: try it on a model without a phase effect too.
        device: where the model runs.
        report: told the trials that are done, and all.

    Returns:
        what was won; without outcomes where there was nothing to fix. It is kept in mitigation.json.

    Raises:
        UsageError: if the run has no such profile, or the seed is the run's own.
    """
    folder = Path(folder)
    profile = read_profile(folder, condition)
    description = read_description(folder)
    own = description.condition(profile.condition)
    if own is None:
        raise UsageError(
            f"{folder} has no condition {profile.condition!r}; give the run that the profile was measured in"
        )
    fresh = description.seed + 1 if seed is None else seed
    if fresh == description.seed:
        raise UsageError(f"seed {fresh} gives the prompts that the profile was measured on; give another")
    if not profile.sensitive and not anyway:
        return MitigationResult(profile=profile, outcomes=())
    checkpoint = resolve_measured(own.backend, model)
    (answerer,) = local([str(checkpoint.folder)], loading={"device": device})
    protocol = described_protocol(own.protocol, checkpoint.folder).with_contexts(contexts)
    backend = loaded(answerer.backend)
    ways = Ways(shifts or (0, max(1, profile.stride // 2)), combine, below, limit)
    target = folder / "mitigate" if out is None else out
    run(conditions(backend, protocol, profile, ways), target, fresh, report)
    result = result_of(target, profile, fresh)
    result.write(target / "mitigation.json")
    return result
