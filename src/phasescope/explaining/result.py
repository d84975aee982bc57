"""The result of an explanation, as explain.json holds it; numpy, pydantic and pyarrow only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from ..columns import Tabular
from ..files import dump_json, read_record, write_atomic
from ..records import SCHEMA, Finding, Name, Record
from ..statistics.intervals import Estimate
from ..statistics.table import Coordinate, Outcome
from .units import Branch, Mode, Where

MOST_PHASES = 2**16


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


Real = Annotated[float, Field(allow_inf_nan=False)]
End = Annotated[Annotated[float, Field(allow_inf_nan=True)] | None, AfterValidator(_finite)]
"""A number, or null where there is none: the end of an interval that one context alone cannot have."""
Share = Annotated[Real, Field(ge=-1e-6, le=1 + 1e-6)]
"""0 to 1, but for rounding."""
Numbers = Annotated[tuple[Real, ...], BeforeValidator(_listed), Field(max_length=MOST_PHASES)]
Ends = Annotated[tuple[End, ...], BeforeValidator(_listed), Field(max_length=MOST_PHASES)]
Matrix = Annotated[tuple[Numbers, ...], BeforeValidator(_listed), Field(max_length=MOST_PHASES)]
Phases = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=MOST_PHASES)]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class Interval(Record):
    """A value with its 95 % interval; null where the data give none."""

    value: End
    low: End = None
    high: End = None

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        """The record of an estimate."""
        return cls(value=estimate.value, low=estimate.low, high=estimate.high)


class Loss(Record):
    """What the model loses without one unit.

    Attributes:
        unit: its name.
        outcome: accuracy (a share), or log-probability (nats).
        mean: loss over all trials; interval at 95 % over all units together.
        mean_p: p that nothing is lost on average, by cluster t; `mean_p_holm` is corrected over units by Holm.
        phase, low, high: loss at each phase; intervals at 95 % over all units together.
        index: specialisation, see `specialise`; null where the mean loss is not above 0.
        phase_sd: SD over phases of the loss, sampling noise removed.
        p: p that the loss is the same at all phases, by permuting layouts within contexts; `p_holm` is corrected.
        null_95: 95th percentile of the index under that permutation.
    """

    unit: Name
    outcome: Outcome
    mean: Interval
    mean_p: Share
    mean_p_holm: Share
    phase: Numbers
    low: Ends
    high: Ends
    index: End
    phase_sd: Interval
    p: Share
    p_holm: Share
    null_95: End


class Contrast(Record):
    """The mean over some phases less the mean over the others.

    Attributes:
        estimate: in the outcome's units, with its 95 % interval over contexts.
        phases: the phases on the positive side.
        smallest: the difference that a test at 5 % would have found with 80 % power, from the measured noise.
    """

    estimate: Interval
    phases: Phases
    smallest: End


class HeadGate(Record):
    """The profile of one head's gate.

    Attributes:
        layer, head: whose.
        mean, low, high: mean weight of each slot with its 95 % interval over contexts.
        prior: the softmax of the learned bias alone; null for a gate without bias.
        entropy: mean entropy of a window's weights, as a share of that of the uniform gate.
        entropy_of_mean: entropy of the mean weights, as the same share.
        recurrence: share of the weights' variance around 1/W that is between slots and not between inputs: 1 for a
            preference that recurs on every input, 0 for one that follows content alone. Null for a uniform gate.
        prior_distance: total variation distance between the mean weights and the prior.
        prior_correlation: correlation of the mean weights with the prior over slots.
        windows: how many were read.
    """

    layer: Count
    head: Count
    mean: Numbers
    low: Ends
    high: Ends
    prior: Numbers | None
    entropy: Share
    entropy_of_mean: Share
    recurrence: Share | None
    prior_distance: Share | None
    prior_correlation: End
    windows: Count

    @property
    def name(self) -> str:
        """L1.H0 for head 0 of layer 1."""
        return f"L{self.layer}.H{self.head}"


class CoverageScores(Record):
    """What the gates keep of each phase, beside the measured curve; see `coverage_score`.

    Attributes:
        link: link of each head below the last layer, at each phase.
        keep: keep of each head of the last layer.
        heads: the best link times keep, of each head of the last layer.
        phases: the coverage score of each phase: that of its best head.
        kept: which head keeps which phase.
        unkept: phases that no head keeps.
        weakest: the phase with the lowest score.
        measured_weakest: the phases with the lowest measured accuracy.
        hit: whether `weakest` is one of them; `chance` is the probability for a phase drawn at random.
        agreement: rank correlation of score and accuracy over phases.
    """

    link: Matrix
    keep: Matrix
    heads: Matrix
    phases: Numbers
    kept: Annotated[tuple[tuple[bool, ...], ...], BeforeValidator(_listed)]
    unkept: Phases
    weakest: Count
    measured_weakest: Phases
    hit: bool
    chance: Share
    agreement: End


class Roll(Record):
    """What the curve becomes when the bias of every gate is rolled over its slots.

    Attributes:
        slots: by how many slots.
        curve: accuracy at each phase.
        mean: change of the mean accuracy, 95 % over all rolls together.
        won: change at the boundary phases, likewise; null without a boundary.
        stays: correlation over phases with the untouched curve.
        moves: the same with the untouched curve moved by as many phases.
    """

    slots: Count
    curve: Numbers
    mean: Interval
    won: Interval | None
    stays: End
    moves: End


class BoundaryResult(Record):
    """The phases at a window's end (see `boundary.Boundary`), their contrasts, and the rolled gates."""

    parted: Phases
    closed: Phases
    contrasts: dict[Literal["parted", "closed"], Contrast | None]
    rolls: tuple[Roll, ...]


class Curve(Record):
    """The measured accuracy at each phase; `flat` if the interval of its SD over phases reaches 0."""

    rate: Numbers
    low: Ends
    high: Ends
    phase_sd: Interval
    flat: bool
    contexts: Count


class Method(Record):
    """How the explanation was made.

    Attributes:
        mode, branch, where, seed, draws: as in the settings.
        reference_prompts: prompts (or positions) over which outputs of heads were averaged.
        verified: largest change by edits that must change nothing, and smallest change by edits that must; in nats.
        kind: class of the model.
    """

    mode: Mode
    branch: Branch
    where: Where
    seed: Count
    draws: Count
    reference_prompts: Count
    verified: dict[str, End]
    kind: Name = Field(validation_alias=AliasChoices("kind", "class"), serialization_alias="class")


class Cost(Record):
    """What is read, how often, and for how long.

    Attributes:
        units: how many are taken away, one at a time.
        rolls: how many times gates are rolled.
        contexts, blocks, layouts: what is asked.
        prompt_tokens: tokens of context that are read once for all units, and once more for each roll.
        last_tokens: last tokens that are read again from the layer of a unit on.
        seconds: by the run's own speed; null where it is not known, and in a result, which holds no times.
    """

    units: Count
    rolls: Count
    contexts: Count
    blocks: Count
    layouts: Count
    prompt_tokens: Count
    last_tokens: Count
    seconds: End = None

    def words(self) -> str:
        """One line."""
        time = (
            "" if self.seconds is None else f", about {max(1, round(self.seconds))} s at the run's own speed"
        )
        return (
            f"{self.units} units and {self.rolls} rolls over {self.blocks} blocks at {self.layouts} layouts in "
            f"{self.contexts} contexts: {self.prompt_tokens:,} tokens of context, {self.last_tokens:,} last tokens "
            f"again{time}"
        )


class ExplanationResult(Tabular, Record):
    """Which heads serve which phases, what their gates keep, and whether that accounts for the measured curve.

    Attributes:
        condition, run, model, protocol: what was explained.
        coordinate, stride: the position that is folded, and its modulus.
        blocks, contexts, layouts: how many were asked.
        settings: how it was done.
        cost: what was read; null in files of version 0.1.
        units: names of what was taken away.
        curve: what the run measured.
        losses: by outcome, one per unit.
        contrasts: by head with a gate: its loss at the phases that the gate prefers less that at the others.
        gates: one per head.
        coverage_score: null where the gates give none; `account` in files of version 0.1.
        boundary: the ends of windows.
        findings: all estimates, in the form of findings.json.
    """

    v: Literal[1] = Field(default=SCHEMA, alias="schema")
    condition: Name = Field(validation_alias=AliasChoices("condition", "arm"))
    run: Name
    model: Name
    protocol: Name
    coordinate: Coordinate
    stride: int = Field(ge=2, le=MOST_PHASES)
    blocks: Count
    contexts: Count
    layouts: Count
    settings: Method = Field(validation_alias=AliasChoices("settings", "facts"))
    cost: Cost | None = None
    units: tuple[Name, ...]
    curve: Curve
    losses: dict[Outcome, tuple[Loss, ...]]
    contrasts: dict[str, Contrast]
    gates: tuple[HeadGate, ...]
    coverage_score: CoverageScores | None = Field(validation_alias=AliasChoices("coverage_score", "account"))
    boundary: BoundaryResult
    findings: tuple[Finding, ...] = ()

    @model_validator(mode="after")
    def _of_one_stride(self) -> Self:
        """A page draws one cell per phase."""
        rows: list[Sequence[Any]] = [self.curve.rate, self.curve.low, self.curve.high]
        rows += [
            row for losses in self.losses.values() for one in losses for row in (one.phase, one.low, one.high)
        ]
        rows += [roll.curve for roll in self.boundary.rolls]
        if (score := self.coverage_score) is not None:
            rows += [score.phases, *score.link, *score.keep, *score.heads, *score.kept]
        if any(len(row) != self.stride for row in rows):
            raise ValueError(f"a curve has not as many values as its stride of {self.stride}")
        slots = [
            (gate.mean, row) for gate in self.gates for row in (gate.low, gate.high, gate.prior or gate.mean)
        ]
        if any(len(mean) != len(row) for mean, row in slots):
            raise ValueError("a gate has not as many intervals as slots")
        return self

    @field_validator("findings", mode="before")
    @classmethod
    def _of_file(cls, findings: Any) -> Any:
        """A file leaves out what is null; version 0.1 called the coverage score an account."""
        if not isinstance(findings, list):
            return findings
        renamed = [{"value": None, **one} if isinstance(one, dict) else one for one in findings]
        for one in renamed:
            if isinstance(one, dict) and one.get("name") == "account":
                one["name"] = "coverage_score"
        return renamed

    @field_serializer("findings", when_used="json")
    def _as_findings_json(self, findings: tuple[Finding, ...]) -> list[dict[str, Any]]:
        return [one.model_dump(mode="json", exclude_none=True) for one in findings]

    def __repr__(self) -> str:
        """Short, as a notebook shows it."""
        named = (
            "no coverage score"
            if self.coverage_score is None
            else f"weakest by gates {self.coverage_score.weakest}"
        )
        return (
            f"ExplanationResult({self.condition[:60]!r}, stride {self.stride}, {len(self.units)} units, "
            f"{len(self.gates)} gates, {named}, {len(self.findings)} findings)"
        )

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`, one row per outcome, unit and phase: unit, outcome, phase, lost, low, high."""
        rows = [
            {"unit": one.unit, "outcome": one.outcome, "phase": phase, "lost": lost, "low": low, "high": high}
            for losses in self.losses.values()
            for one in losses
            for phase, (lost, low, high) in enumerate(zip(one.phase, one.low, one.high, strict=True))
        ]
        kinds = [pa.string(), pa.string(), pa.int64(), pa.float64(), pa.float64(), pa.float64()]
        names = ("unit", "outcome", "phase", "lost", "low", "high")
        return pa.Table.from_pylist(rows, pa.schema(zip(names, kinds, strict=True)))

    def write(self, path: Path) -> None:
        """Write explain.json; the same result gives the same bytes."""
        write_atomic(path, dump_json(_rounded(self.model_dump(mode="json", by_alias=True))))


def read_explanation(path: Path) -> ExplanationResult:
    """Read an explain.json, of version 0.1 too.

    Raises:
        UsageError: if there is no such file.
        BrokenRecordError: if it is not what `explain` writes.
    """
    return read_record(path, ExplanationResult)


def _rounded(value: Any) -> Any:
    """Floats to 10 decimals, so that the last bits of another machine's sums are not written."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 10) if isinstance(value, float) else value
