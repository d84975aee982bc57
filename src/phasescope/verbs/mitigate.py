"""Votes and pads on a model that a run has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..backends import loaded
from ..checkpoints.resolve import resolve_measured
from ..errors import UsageError
from ..mitigations import MitigateSettings, MitigationResult, conditions, read_profile, result_of
from ..protocols import described_protocol
from ..running.runner import Report, run
from ..runs import read_description
from .answerers import local


def mitigate(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    report: Report = lambda done, total: None,
    **settings: Any,
) -> MitigationResult:
    """Measure votes and pads on a model that a run has measured, with prompts that the run has not seen.

    Args:
        folder: a run that `report` has read, so that it holds profile.json.
        out: the run folder of the trial; by default `mitigate` in the run's own.
        report: called with the number of answered trials, and of all.
        **settings: as `mitigations.MitigateSettings` has them.

    Returns:
        what was won; without outcomes where there was nothing to fix. It is kept in mitigation.json.

    Raises:
        UsageError: for a setting out of its range, if the run has no such profile, or the seed is the run's own.
    """
    given = MitigateSettings.checked(**settings)
    folder = Path(folder)
    profile = read_profile(folder, given.condition)
    description = read_description(folder)
    own = description.condition(profile.condition)
    if own is None:
        raise UsageError(
            f"{folder} has no condition {profile.condition!r}; give the run that the profile was measured in"
        )
    seed = description.seed + 1 if given.seed is None else given.seed
    if seed == description.seed:
        raise UsageError(f"seed {seed} gives the prompts that the profile was measured on; give another")
    if not profile.sensitive and not given.anyway:
        return MitigationResult(profile=profile, outcomes=())
    checkpoint = resolve_measured(own.backend, given.model)
    (answerer,) = local([str(checkpoint.folder)], loading={"device": given.device})
    protocol = described_protocol(own.protocol, checkpoint.folder).with_contexts(given.contexts)
    target = folder / "mitigate" if out is None else Path(out)
    run(conditions(loaded(answerer.backend), protocol, profile, given), target, seed, report)
    result = result_of(target, profile, seed)
    result.write(target / "mitigation.json")
    return result
