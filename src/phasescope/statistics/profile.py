"""A phase profile: how well a model recalls at each phase, measured once, and used to place facts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from ..errors import UsageError
from ..files import dump_json, read_record, write_atomic
from ..records import Finding, Record
from .verdict import Judgement, find

Share = Annotated[float, Field(ge=0, le=1)]

TOLERANCE = 0.05
"""A phase counts as strong if its accuracy is at most this far below the best phase's."""


class Profile(Record):
    """Accuracy per phase of one condition, as `report` measured it.

    Attributes:
        v: version of this schema.
        condition: the condition that was measured.
        stride: tokens after which the curve repeats.
        accuracy: per phase, 0 to stride − 1.
        low, high: 95 % intervals of the same.
        sensitive: whether the condition was judged phase-sensitive with the stride as its period. Where it was
            not, no phase is stronger than another.
        n_blocks, n_clusters: what the numbers rest on.
    """

    v: Literal[1] = 1
    condition: str = Field(validation_alias=AliasChoices("condition", "arm"))
    stride: int = Field(ge=1)
    accuracy: tuple[Share, ...]
    low: tuple[Share, ...]
    high: tuple[Share, ...]
    sensitive: bool
    n_blocks: int = Field(ge=0)
    n_clusters: int = Field(ge=0)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if {len(self.accuracy), len(self.low), len(self.high)} != {self.stride}:
            raise ValueError(f"a stride of {self.stride} needs as many accuracies, lows and highs")
        return self

    @classmethod
    def from_findings(cls, findings: Sequence[Finding], judgement: Judgement) -> Self | None:
        """The profile of one condition; None where a phase was not visited, or the query was moved."""
        spread = find(findings, "phase_sd")
        if spread is None or spread.stride is None or spread.coordinate != "source":
            return None
        kind = ("phase_rate", "accuracy", spread.stride)
        rates = {one.residue: one for one in findings if (one.name, one.outcome, one.stride) == kind}
        if rates.keys() != set(range(spread.stride)):
            return None
        ordered = [rates[phase] for phase in range(spread.stride)]
        return cls(
            condition=judgement.condition,
            stride=spread.stride,
            accuracy=tuple(one.value or 0.0 for one in ordered),
            low=tuple(one.low if one.low is not None else 0.0 for one in ordered),
            high=tuple(one.high if one.high is not None else 1.0 for one in ordered),
            sensitive=judgement.state == "sensitive" and judgement.period == spread.stride,
            n_blocks=spread.n_blocks,
            n_clusters=spread.n_clusters,
        )

    def strong(self, tolerance: float = TOLERANCE) -> tuple[int, ...]:
        """The phases whose accuracy is within `tolerance` of the best; all where there is no effect."""
        if not self.sensitive:
            return tuple(range(self.stride))
        least = max(self.accuracy) - tolerance
        return tuple(phase for phase, rate in enumerate(self.accuracy) if rate >= least)


class _ProfileFile(Record):
    profiles: tuple[Profile, ...]


def write_profiles(path: Path, profiles: Sequence[Profile]) -> None:
    """Write profile.json: the profiles of a report's conditions."""
    write_atomic(path, dump_json({"profiles": [profile.model_dump(mode="json") for profile in profiles]}))


def read_profile(path: Path, condition: str | None = None) -> Profile:
    """Read one condition's profile from profile.json, or from the run folder that holds it.

    Args:
        path: the file or its folder.
        condition: the condition's name; it may be left out where only one condition is sensitive, or there is only one.

    Raises:
        UsageError: if there is no such profile, or several and none is named.
    """
    file = path / "profile.json" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(
            f"no profile at {path}: run `phasescope report RUN` first, it writes RUN/profile.json"
        )
    return _chosen(read_record(file, _ProfileFile).profiles, condition, file)


def _chosen(profiles: Sequence[Profile], condition: str | None, file: Path) -> Profile:
    named = {profile.condition: profile for profile in profiles}
    if condition is not None:
        if condition not in named:
            raise UsageError(f"{file} has no condition {condition!r}; it has {', '.join(named) or 'none'}")
        return named[condition]
    sensitive = [profile for profile in profiles if profile.sensitive]
    for found in (sensitive, profiles):
        if len(found) == 1:
            return found[0]
    raise UsageError(f"{file} has {len(profiles)} profiles ({', '.join(named)}); choose one with --condition")
