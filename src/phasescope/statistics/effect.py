"""The phase effect of one condition of a run: does what the model recalls depend on a residue?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..records import Finding, Record
from .analyses import analyse_conditions
from .conditions import Condition, read_conditions
from .table import Coordinate
from .verdict import Judgement, State, find


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
        digest: of the weights of the model that is checked; None if unknown.
        seed: of permutations and halvings.
        draws: permutations per test.

    Raises:
        UsageError: if the run has no such condition, several that fit, or measured other weights.
        BrokenRecordError: if a file of the run is damaged.
    """
    conditions, runs = read_conditions([folder])
    chosen = _chosen(folder, conditions, condition, digest)
    if not chosen.observations:
        raise UsageError(f"{folder} has no observation of condition {chosen.name!r}; finish the run first")
    found = analyse_conditions(conditions, runs, seed=seed, draws=draws)[chosen.name]
    assert found.judgement is not None
    state, period = found.judgement.state, found.judgement.period
    return Effect(
        run=chosen.run,
        condition=chosen.name,
        state=state,
        period=period if state == "sensitive" else None,
        coordinate=chosen.coordinate,
        sentence=_sentence(found.judgement, find(found.findings, "phase_sd"), chosen.coordinate),
    )


def _chosen(folder: Path, conditions: Sequence[Condition], name: str | None, digest: str | None) -> Condition:
    """The named condition, or the only one of the model with that digest."""
    named = [one for one in conditions if name in (None, one.name)]
    if not named:
        known = ", ".join(one.name for one in conditions)
        raise UsageError(f"{folder} has no condition {name!r}; it has {known}")
    # The digest of a condition may be unknown; such a condition counts only if it is named.
    allowed = {digest} if name is None else {digest, None}
    fitting = [one for one in named if digest is None or one.described.backend.digest in allowed]
    if not fitting:
        raise UsageError(f"{folder} measured other weights than are checked; measure this model first")
    if len(fitting) > 1:
        names = ", ".join(one.name for one in fitting)
        raise UsageError(f"{folder} has several conditions that fit: {names}; name one with --condition")
    return fitting[0]


def _sentence(judgement: Judgement, spread: Finding | None, coordinate: Coordinate) -> str:
    size = "" if spread is None or spread.value is None else f" (phase SD {100 * spread.value:.1f} points)"
    words = {
        "sensitive": f"recall depends on the {coordinate}'s position modulo {judgement.period}",
        "position": f"recall depends on the {coordinate}'s position, and no period was found",
        "flat": f"recall does not depend on the {coordinate}'s position",
        "undecided": f"it is undecided whether recall depends on the {coordinate}'s position",
    }
    return words[judgement.state] + size
