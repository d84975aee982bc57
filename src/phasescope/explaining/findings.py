"""From logged answers and read gates to an `ExplanationResult`; numpy only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from ..grid import WindowGrid
from ..logs import read_log
from ..records import Dropped, Finding, Observation
from ..statistics.fold import phase_effects
from ..statistics.intervals import clustered_wilson
from ..statistics.phase_effect import phase_sd
from ..statistics.table import Outcome, Table, tabulate
from ..statistics.verdict import excludes_zero
from .boundary import boundary, rolled_curves
from .coverage_score import CoverageScore, agreement, chance_of_hit, weakest_phases
from .gates import prefers_slots
from .result import (
    BoundaryResult,
    Contrast,
    Cost,
    CoverageScores,
    Curve,
    ExplanationResult,
    HeadGate,
    Interval,
    Loss,
    Method,
)
from .specialisation import PhaseAxis, contrast, lost, specialise
from .units import BASE

if TYPE_CHECKING:
    from .measured import Measured  # needs torch

OUTCOMES: tuple[Outcome, ...] = ("accuracy", "logprob")

METHODS = {
    "mean_loss": "outcome with everything less without the unit, the same trials, over all of them; cluster t interval "
    "at 95 % over all units together; p by cluster t, corrected over units by Holm",
    "loss_at_phase": "the same at one phase; interval at 95 % over all units together",
    "specialisation": "SD over phases of the loss within blocks, sampling noise removed, over its mean times "
    "√(phases − 1); p by permuting the layouts of whole contexts, corrected over units by Holm",
    "head_contrast": "mean loss at the phases that the head's gate prefers less that at the others; cluster t interval "
    "at 95 %",
    "gate_recurrence": "share of the variance of a gate's weights around 1/W that is between slots and not between "
    "inputs",
    "gate_entropy": "mean entropy of a window's weights as a share of that of the uniform gate",
    "coverage_score": "phase with the lowest coverage score (explaining/coverage_score.py), from gates on prompts that "
    "are not the run's",
    "boundary_contrast": "accuracy at boundary phases less that at the others; cluster t interval at 95 %",
    "boundary_won": "change at the boundary phases by the best roll of the gates; cluster t interval at 95 % over all "
    "rolls together",
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was observed of one condition, from which everything else follows.

    Attributes:
        measured: the condition, its model and protocol, and the run's own observations: the measured curve.
        axis: the phases.
        log: the observations of all conditions of the explanation.
        units: names of what was taken away.
        rolls: by how many slots gates were rolled, and the name of that condition.
        gates: profile of every gate.
        coverage: the coverage score; None where gates don't give one.
        grids: of every layer that has any, by layer, one per head.
        raw: every query reads the last so many tokens uncompressed.
        closing: whether the token that closes a window reads its entry, and not only the next one.
    """

    measured: Measured
    axis: PhaseAxis
    log: Path
    units: Sequence[str]
    rolls: Sequence[tuple[int, str]]
    gates: Sequence[HeadGate]
    coverage: CoverageScore | None
    grids: Mapping[int, Sequence[WindowGrid]]
    raw: int
    closing: bool


def explained(
    evidence: Evidence, settings: Method, cost: Cost, *, rng: np.random.Generator
) -> ExplanationResult:
    """Everything that is found of one condition.

    Args:
        evidence: what was observed.
        settings: how it was done.
        cost: what it took.
        rng: of the permutations.

    Raises:
        UsageError: if the run does not visit every phase.
    """
    measured, axis = evidence.measured, evidence.axis
    curve = _curve(evidence)
    tables = _tables(evidence.log)
    base = tables[BASE]
    losses = {
        outcome: tuple(
            specialise(
                base,
                [tables[unit] for unit in evidence.units],
                outcome,
                axis,
                rng=rng,
                draws=settings.draws,
            )
        )
        for outcome in OUTCOMES
        if outcome in base.outcomes
    }
    result = ExplanationResult(
        condition=measured.condition,
        run=measured.folder.resolve().name,
        model=measured.backend.name,
        protocol=measured.protocol.name,
        coordinate=axis.coordinate,
        stride=axis.stride,
        blocks=base.n_blocks,
        contexts=base.n_clusters,
        layouts=base.n_layouts,
        settings=settings,
        cost=cost,
        units=tuple(evidence.units),
        curve=curve,
        losses=losses,
        contrasts=dict(_contrasts(tables, evidence)),
        gates=tuple(evidence.gates),
        coverage_score=None if evidence.coverage is None else _scores(evidence.coverage, curve),
        boundary=_boundary(tables, evidence),
    )
    return result.model_copy(update={"findings": tuple(_findings(result))})


def _curve(evidence: Evidence) -> Curve:
    """The accuracy that the run measured at each phase."""
    axis, table = evidence.axis, tabulate(evidence.measured.observed)
    phase_P, rate = axis.rates(table)
    if len(phase_P) < axis.stride:
        raise UsageError(
            f"{evidence.measured.condition} visits {len(phase_P)} of {axis.stride} phases; measure it at more residues"
        )
    low_P, high_P = clustered_wilson(rate) if table.n_clusters > 1 else (rate.rate_R, rate.rate_R)
    spread = phase_sd(phase_effects(table, "accuracy", axis.fold(table)))
    return Curve(
        rate=rate.rate_R,
        low=low_P,
        high=high_P,
        phase_sd=Interval.of(spread),
        flat=not excludes_zero(spread.low),
        contexts=table.n_clusters,
    )


def _tables(log: Path) -> dict[str, Table]:
    """One table per condition of the explanation."""
    by_condition: dict[str, list[Observation]] = {}
    for line in read_log(log):
        if not isinstance(line, Dropped):
            by_condition.setdefault(line.condition, []).append(line)
    return {name: tabulate(observations) for name, observations in by_condition.items()}


def _boundary(tables: dict[str, Table], evidence: Evidence) -> BoundaryResult:
    """The boundary of the one grid that all heads share (none where grids differ), measured and with rolled gates."""
    axis = evidence.axis
    grids = {grid for heads in evidence.grids.values() for grid in heads}
    parted, closed = (
        boundary(grids.pop(), axis.stride, evidence.raw, closing=evidence.closing)
        if len(grids) == 1
        else ((), ())
    )
    measured = tabulate(evidence.measured.observed)
    rolls = [(slots, tables[name]) for slots, name in evidence.rolls]
    return BoundaryResult(
        parted=parted,
        closed=closed,
        contrasts={"parted": contrast(measured, parted, axis), "closed": contrast(measured, closed, axis)},
        rolls=tuple(rolled_curves(tables[BASE], rolls, closed, axis)),
    )


def _contrasts(tables: dict[str, Table], evidence: Evidence) -> Iterator[tuple[str, Contrast]]:
    """For each head with a gate, what it costs at the phases that its gate prefers.

    In the last layer these are the phases that it keeps more than on average; below it, those whose key lies in a
    slot of more than the average weight.
    """
    axis, score = evidence.axis, evidence.coverage
    last = max((gate.layer for gate in evidence.gates), default=0)
    for gate in evidence.gates:
        name = next((n for n in (gate.name, f"{gate.name} entries") if n in evidence.units), None)
        if name is None or (gate.layer == last and score is None):
            continue
        if gate.layer == last and score is not None:
            prefers_P = score.prefers_HP()[gate.head]
        else:
            prefers_P = prefers_slots(gate, evidence.grids[gate.layer][gate.head], axis.stride)
        table = lost(tables[BASE], tables[name], "accuracy")
        found = contrast(table, np.flatnonzero(prefers_P).tolist(), axis)
        if found is not None:
            yield name, found


def _scores(score: CoverageScore, curve: Curve) -> CoverageScores:
    """The coverage score beside the measured curve."""
    weakest = weakest_phases(curve.rate)
    return CoverageScores(
        link=score.link_AP,
        keep=score.keep_HP,
        heads=score.heads_HP,
        phases=score.phases_P,
        kept=score.kept_HP,
        unkept=score.unkept,
        weakest=score.weakest,
        measured_weakest=weakest,
        hit=score.weakest in weakest,
        chance=chance_of_hit(len(curve.rate)),
        agreement=agreement(score.phases_P, np.asarray(curve.rate)),
    )


def _findings(result: ExplanationResult) -> Iterator[Finding]:
    """All estimates of a result in the form of findings.json, heads first."""

    def finding(name: str, estimate: Interval, **fields: Any) -> Finding:
        return Finding(
            name=name,
            method=METHODS[name],
            condition=result.condition,
            coordinate=result.coordinate,
            stride=result.stride,
            n_blocks=result.blocks,
            n_clusters=result.contexts,
            **estimate.model_dump(),
            **fields,
        )

    for losses in result.losses.values():
        for loss in losses:
            yield finding("mean_loss", loss.mean, **_of(loss, loss.mean_p, p_holm=loss.mean_p_holm))
            for phase, ends in enumerate(zip(loss.phase, loss.low, loss.high, strict=True)):
                value, low, high = ends
                at_phase = Interval(value=value, low=low, high=high)
                yield finding("loss_at_phase", at_phase, residue=phase, **_of(loss, None))
            more = {"null_95": loss.null_95, "phase_sd": loss.phase_sd.model_dump()}
            yield finding(
                "specialisation", Interval(value=loss.index), **_of(loss, loss.p, p_holm=loss.p_holm, **more)
            )
    for name, head in result.contrasts.items():
        detail = {"unit": name, "phases": list(head.phases), "smallest_detectable_effect": head.smallest}
        yield finding("head_contrast", head.estimate, detail=detail)
    for gate in result.gates:
        detail = {"unit": gate.name, "windows": gate.windows}
        yield finding("gate_recurrence", Interval(value=gate.recurrence), detail=detail)
        yield finding("gate_entropy", Interval(value=gate.entropy), detail=detail)
    if (score := result.coverage_score) is not None:
        detail = score.model_dump(mode="json", exclude={"link", "keep", "heads"})
        yield finding("coverage_score", Interval(value=score.weakest), residue=score.weakest, detail=detail)
    for edge, found in result.boundary.contrasts.items():
        if found is not None:
            detail = {"boundary": edge, "phases": list(found.phases)}
            yield finding("boundary_contrast", found.estimate, detail=detail)
    won = [(roll.won, roll.slots) for roll in result.boundary.rolls if roll.won is not None]
    if won:
        best, slots = max(won, key=lambda one: one[0].value or 0.0)
        yield finding("boundary_won", best, detail={"slots": slots, "rolls": len(won)})


def _of(loss: Loss, p_value: float | None, **detail: Any) -> dict[str, Any]:
    """The fields of a finding about the loss without one unit."""
    return {"outcome": loss.outcome, "p_value": p_value, "detail": {"unit": loss.unit, **detail}}
