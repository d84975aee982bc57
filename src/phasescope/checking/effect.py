"""What a run of `measure` says of the model that is checked: does recall depend on a residue?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..records import Finding
from ..runs import read_run
from ..statistics import analyse
from .verdict import Effect

SIGNIFICANT = 0.05
FOLD = 24  # of a model without a grid


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
    run = read_run(folder)
    conditions = {described["name"]: described for described in run.description["conditions"]}
    chosen = _chosen(folder, conditions, condition, digest)
    observations, described = run.observations[chosen], conditions[chosen]
    if not observations:
        raise UsageError(f"{folder} has no observation of condition {chosen!r}; finish the run first")
    strides = [int(grid["stride"]) for grid in described["backend"].get("grids") or ()]
    together = math.lcm(*strides) if strides else 1
    stride = together if together > 1 else None
    coordinate = described["protocol"]["moves"]
    findings = analyse(
        observations,
        stride=stride,
        fold=stride or FOLD,
        coordinate=coordinate,
        rng=np.random.default_rng([seed, *chosen.encode()]),
        draws=draws,
    )
    return _judged(folder.resolve().name, chosen, coordinate, findings)


def _chosen(folder: Path, conditions: dict[str, Any], condition: str | None, digest: str | None) -> str:
    if condition is not None:
        if condition not in conditions:
            raise UsageError(f"{folder} has no condition {condition!r}; it has {', '.join(conditions)}")
        fitting = [condition]
    else:
        fitting = [name for name, one in conditions.items() if digest in (None, one["backend"].get("digest"))]
    there = conditions[fitting[0]]["backend"].get("digest") if fitting else None
    if not fitting or (digest is not None and there is not None and there != digest):
        raise UsageError(f"{folder} measured other weights than are checked; measure this model first")
    if len(fitting) > 1:
        raise UsageError(
            f"{folder} has several conditions that fit: {', '.join(fitting)}; name one with --condition"
        )
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
