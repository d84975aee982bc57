"""What a run of `measure` says of the model that is checked: does recall depend on a residue?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..records import Finding
from ..statistics import analyse
from ..statistics.conditions import Condition, read_conditions
from .verdict import Effect

SIGNIFICANT = 0.05


def read_effect(
    folder: Path, *, condition: str | None = None, digest: str | None = None, seed: int = 0, draws: int = 2000
) -> Effect:
    """The phase effect of one condition of a run.

    A condition is sensitive when a period stands and the interval of the phase SD excludes 0, flat when neither
    does and the test at its stride is silent too, else undecided: as `phasescope report` judges.

    Args:
        folder: a run folder.
        condition: which condition; by default the only one of the model with this digest.
        digest: of the weights of the model that is checked; null where it is not known.
        seed: of permutations and halvings.
        draws: permutations per test.

    Raises:
        UsageError: if the run has no such condition, several that fit, or measured other weights.
        BrokenRecordError: if a file of the run is damaged.
    """
    conditions, _ = read_conditions([folder])
    chosen = _chosen(folder, conditions, condition, digest)
    if not chosen.observations:
        raise UsageError(f"{folder} has no observation of condition {chosen.name!r}; finish the run first")
    findings = analyse(
        chosen.observations,
        stride=chosen.stride,
        fold=chosen.fold,
        residues=chosen.residues,
        coordinate=chosen.coordinate,
        rng=np.random.default_rng([seed, *chosen.name.encode()]),
        draws=draws,
    )
    return _judged(chosen.run, chosen.name, chosen.coordinate, findings)


def _chosen(
    folder: Path, conditions: Sequence[Condition], condition: str | None, digest: str | None
) -> Condition:
    if condition is not None:
        fitting = [one for one in conditions if one.name == condition]
        if not fitting:
            names = ", ".join(one.name for one in conditions)
            raise UsageError(f"{folder} has no condition {condition!r}; it has {names}")
    else:
        fitting = [one for one in conditions if digest in (None, one.described.backend.digest)]
    there = fitting[0].described.backend.digest if fitting else None
    if not fitting or (digest is not None and there is not None and there != digest):
        raise UsageError(f"{folder} measured other weights than are checked; measure this model first")
    if len(fitting) > 1:
        names = ", ".join(one.name for one in fitting)
        raise UsageError(f"{folder} has several conditions that fit: {names}; name one with --condition")
    return fitting[0]


def _judged(run: str, condition: str, coordinate: str, findings: Sequence[Finding]) -> Effect:
    named = {finding.name: finding for finding in findings if finding.outcome == "accuracy"}
    period, spread, test = (named.get(name) for name in ("period", "phase_sd", "phase_test"))
    stands = (
        period is not None
        and period.value is not None
        and period.p_value is not None
        and period.p_value < SIGNIFICANT
    )
    wide = spread is not None and spread.low is not None and spread.low > 0
    silent = test is not None and test.p_value is not None and test.p_value >= SIGNIFICANT
    least = named.get("smallest_detectable_effect")
    known = least is not None and least.value is not None
    position = "the source's position" if coordinate == "source" else "the query's position"
    size = "" if spread is None or spread.value is None else f" (phase SD {100 * spread.value:.1f} points)"
    if stands and wide:
        assert period is not None
        assert period.value is not None
        every = int(period.value)
        sentence = f"recall depends on {position} modulo {every}{size}"
        return Effect(
            run=run,
            condition=condition,
            state="sensitive",
            period=every,
            coordinate=coordinate,
            sentence=sentence,
        )
    flat = not stands and not wide and silent and known
    words = "recall does not depend on" if flat else "it is undecided whether recall depends on"
    return Effect(
        run=run,
        condition=condition,
        state="flat" if flat else "undecided",
        period=None,
        coordinate=coordinate,
        sentence=f"{words} {position}{size}",
    )
