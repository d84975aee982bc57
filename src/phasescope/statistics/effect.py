"""The phase effect of one condition of a run: does what the model recalls depend on a residue?"""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..records import Record
from .analyses import ConditionAnalysis, analyse_conditions
from .conditions import read_conditions
from .table import Coordinate
from .verdict import State, find


class Effect(Record):
    """Whether what the model recalls depends on a residue, as a run of `measure` says.

    Attributes:
        run, condition: where it was measured.
        state: whether there is an effect, by the rule of `verdict.judge`.
        period: in tokens, where one was found.
        coordinate: which position was moved: the source's or the query's.
        sentence: the same in words.
    """

    run: str
    condition: str
    state: State
    period: int | None
    coordinate: Coordinate
    sentence: str


def read_effect(
    folder: Path, *, condition: str | None = None, digest: str | None = None, seed: int = 0, draws: int = 2000
) -> Effect:
    """The phase effect of one condition of a run, as `report` judges it: corrected over the run's conditions.

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
    conditions, runs = read_conditions([folder])
    chosen = _chosen(
        folder, {one.name: one.described.backend.digest for one in conditions}, condition, digest
    )
    if not next(one for one in conditions if one.name == chosen).observations:
        raise UsageError(f"{folder} has no observation of condition {chosen!r}; finish the run first")
    found = analyse_conditions(conditions, runs, seed=seed, draws=draws)[chosen]
    assert found.judgement is not None
    return Effect(
        run=found.condition.run,
        condition=chosen,
        state=found.judgement.state,
        period=found.judgement.period if found.judgement.state == "sensitive" else None,
        coordinate=found.condition.coordinate,
        sentence=_sentence(found),
    )


def _chosen(folder: Path, digests: dict[str, str | None], condition: str | None, digest: str | None) -> str:
    """The name of the condition that is meant."""
    if condition is not None and condition not in digests:
        raise UsageError(f"{folder} has no condition {condition!r}; it has {', '.join(digests)}")
    if condition is None:
        fitting = [name for name, own in digests.items() if digest in (None, own)]
    else:
        fitting = [condition] if digest is None or digests[condition] in (None, digest) else []
    if not fitting:
        raise UsageError(f"{folder} measured other weights than are checked; measure this model first")
    if len(fitting) > 1:
        raise UsageError(
            f"{folder} has several conditions that fit: {', '.join(fitting)}; name one with --condition"
        )
    return fitting[0]


def _sentence(found: ConditionAnalysis) -> str:
    judgement, spread = found.judgement, find(found.findings, "phase_sd")
    position = f"the {found.condition.coordinate}'s position"
    size = "" if spread is None or spread.value is None else f" (phase SD {100 * spread.value:.1f} points)"
    if judgement is not None and judgement.state == "sensitive":
        return f"recall depends on {position} modulo {judgement.period}{size}"
    flat = judgement is not None and judgement.state == "flat"
    words = "recall does not depend on" if flat else "it is undecided whether recall depends on"
    return f"{words} {position}{size}"
