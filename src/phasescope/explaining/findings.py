"""From logged answers and read gates to explain.json; numpy only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..files import read_log
from ..grid import WindowGrid
from ..records import SCHEMA, Dropped, Finding, Observation
from ..statistics.fold import fold_table, phase_effects, phase_rates, trend_basis
from ..statistics.intervals import Estimate, clustered_wilson
from ..statistics.phase_effect import phase_sd
from ..statistics.table import Coordinate, Floats, Outcome, Table, tabulate
from .boundary import Boundary, Roll, at_boundary, boundary, rolled_curves
from .coverage_score import WEAKEST, Account, agreement, chance_of_hit, weakest_phases
from .gates import HeadGate, prefers_slots
from .specialisation import Contrast, Loss, contrast, lost, specialise
from .units import BASE, Unit

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
    "account": "phase with the smallest coverage account (explain/account.py), from gates on prompts that are not the "
    "run's",
    "boundary_contrast": "accuracy at boundary phases less that at the others; cluster t interval at 95 %",
    "boundary_won": "change at the boundary phases by the best roll of the gates; cluster t interval at 95 % over all "
    "rolls together",
}


def explained(
    log: Path,
    *,
    condition: str,
    run: str,
    model: str,
    protocol: str,
    coordinate: Coordinate,
    stride: int,
    observed: Sequence[Observation],
    units: Sequence[Unit],
    rolls: Sequence[tuple[int, str]],
    gates: Sequence[HeadGate],
    account: Account | None,
    grids: Mapping[int, Sequence[WindowGrid]],
    raw: int,
    rng: np.random.Generator,
    draws: int,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Everything that is found of one condition, as explain.json holds it.

    Args:
        log: the observations of all conditions of the explanation.
        condition: what was explained.
        run: label of its run.
        model: name of its model.
        protocol: name of its protocol.
        coordinate: the position that is folded.
        stride: modulus of the phases.
        observed: the run's own observations of the condition: the measured curve.
        units: what was taken away.
        rolls: by how many slots gates were rolled, and under what name.
        gates: profile of every gate.
        account: the coverage account; None where gates don't give one.
        grids: of every layer that has any, by layer, one per head.
        raw: the last so many tokens are read raw.
        rng: of the permutations.
        draws: how many.
        facts: how it was done.
    """
    tables = _tables(log)
    base = tables[BASE]
    measured = tabulate(observed)
    phase_P, rate = phase_rates(measured, "accuracy", coordinate, stride)
    if len(phase_P) < stride:
        raise UsageError(f"{condition} visits {len(phase_P)} of {stride} phases; measure it at more residues")
    losses = {
        outcome: specialise(
            base,
            [tables[unit.name] for unit in units],
            outcome,
            stride=stride,
            coordinate=coordinate,
            rng=rng,
            draws=draws,
        )
        for outcome in OUTCOMES
        if outcome in base.outcomes
    }
    edge = _edge(grids, raw, stride)
    turned = rolled_curves(
        base,
        [(slots, tables[name]) for slots, name in rolls],
        "accuracy",
        edge.closed,
        stride=stride,
        coordinate=coordinate,
    )
    contrasts = dict(_contrasts(tables, units, gates, account, grids, stride, coordinate))
    low_P, high_P = clustered_wilson(rate) if measured.n_clusters > 1 else (rate.rate_R, rate.rate_R)
    spread = _spread(measured, stride, coordinate)
    edges = {
        name: at_boundary(measured, "accuracy", phases, stride=stride, coordinate=coordinate)
        for name, phases in (("parted", edge.parted), ("closed", edge.closed))
    }
    maker = _Maker(condition, coordinate, stride, base.n_blocks, base.n_clusters)
    value = {
        "schema": SCHEMA,
        "condition": condition,
        "run": run,
        "model": model,
        "protocol": protocol,
        "coordinate": coordinate,
        "stride": stride,
        "blocks": base.n_blocks,
        "contexts": base.n_clusters,
        "layouts": base.n_layouts,
        "facts": facts,
        "units": [unit.name for unit in units],
        "curve": {
            "rate": rate.rate_R,
            "low": low_P,
            "high": high_P,
            "phase_sd": asdict(spread),
            "flat": spread.low is None or spread.low <= 0,
            "contexts": measured.n_clusters,
        },
        "losses": {outcome: [_plain(loss) for loss in found] for outcome, found in losses.items()},
        "contrasts": {name: asdict(found) for name, found in contrasts.items()},
        "gates": [_plain(gate) for gate in gates],
        "account": None if account is None else _account(account, rate.rate_R),
        "boundary": {
            "parted": edge.parted,
            "closed": edge.closed,
            "contrasts": {name: None if c is None else asdict(c) for name, c in edges.items()},
            "rolls": [_roll(roll) for roll in turned],
        },
        "findings": [
            finding.model_dump(mode="json", exclude_none=True)
            for finding in maker.findings(losses, contrasts, gates, account, rate.rate_R, edges, turned)
        ],
    }
    written: dict[str, Any] = _json(value)
    return written


def _edge(grids: Mapping[int, Sequence[WindowGrid]], raw: int, modulus: int) -> Boundary:
    """The boundary of the one grid that all heads share; none where they have different ones."""
    different = {grid for heads in grids.values() for grid in heads}
    if len(different) != 1:
        return Boundary((), ())
    return boundary(different.pop(), 1, raw).within(modulus)


def _tables(log: Path) -> dict[str, Table]:
    """One table per condition of the explanation."""
    by_condition: dict[str, list[Observation]] = {}
    for line in read_log(log):
        if not isinstance(line, Dropped):
            by_condition.setdefault(line.condition, []).append(line)
    return {name: tabulate(observations) for name, observations in by_condition.items()}


def _spread(table: Table, stride: int, coordinate: Coordinate) -> Estimate:
    plain = fold_table(table, coordinate, stride, trend_basis(table, coordinate, 1)[:, :0])
    return phase_sd(phase_effects(table, "accuracy", plain))


def _contrasts(
    tables: dict[str, Table],
    units: Sequence[Unit],
    gates: Sequence[HeadGate],
    account: Account | None,
    grids_by_layer: Mapping[int, Sequence[WindowGrid]],
    stride: int,
    coordinate: Coordinate,
) -> Iterator[tuple[str, Contrast]]:
    """For each head with a gate, what it costs at the phases that its gate prefers.

    In the last layer these are the phases that it keeps more than on average; below it, those whose key lies in a
    slot of more than the average weight.
    """
    last, names = max((gate.layer for gate in gates), default=0), {unit.name for unit in units}
    for gate in gates:
        layer, head = gate.layer, gate.head
        name = next((n for n in (f"L{layer}.H{head}", f"L{layer}.H{head} entries") if n in names), None)
        if name is None:
            continue
        if layer == last and account is not None:
            prefers_P = account.prefers_HP()[head]
        elif layer < last:
            prefers_P = prefers_slots(gate, grids_by_layer[layer][head], stride)
        else:
            continue
        table = lost(tables[BASE], tables[name], "accuracy")
        found = contrast(table, "accuracy", prefers_P, stride=stride, coordinate=coordinate)
        if found is not None:
            yield name, found


def _account(account: Account, curve_P: Floats) -> dict[str, Any]:
    weakest = weakest_phases(curve_P)
    return {
        "link": account.link_AP,
        "keep": account.keep_HP,
        "heads": account.heads_HP,
        "phases": account.phases_P,
        "kept": account.kept_HP.tolist(),
        "unkept": account.unkept,
        "weakest": account.weakest,
        "measured_weakest": weakest,
        "hit": account.weakest in weakest,
        "chance": chance_of_hit(len(curve_P), WEAKEST),
        "agreement": agreement(account.phases_P, curve_P),
    }


def _roll(roll: Roll) -> dict[str, Any]:
    return {
        "slots": roll.slots,
        "curve": roll.curve_P,
        "mean": asdict(roll.mean),
        "won": None if roll.won is None else asdict(roll.won.estimate),
        "stays": roll.stays,
        "moves": roll.moves,
    }


def _plain(record: Loss | HeadGate) -> dict[str, Any]:
    """A record as JSON names: without the shape suffixes."""
    return {key.removesuffix("_P").removesuffix("_W"): value for key, value in asdict(record).items()}


def _json(value: Any) -> Any:
    """JSON values: arrays as lists, and nothing where a number is not finite."""
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return _json(value.tolist())
    if isinstance(value, (float, np.floating)):
        return round(float(value), 10) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


class _Maker:
    """Makes the findings of one explanation."""

    def __init__(
        self, condition: str, coordinate: Coordinate, stride: int, blocks: int, clusters: int
    ) -> None:
        self.common: dict[str, Any] = {
            "condition": condition,
            "coordinate": coordinate,
            "stride": stride,
            "n_blocks": blocks,
            "n_clusters": clusters,
        }

    def findings(
        self,
        losses: dict[Outcome, list[Loss]],
        contrasts: dict[str, Contrast],
        gates: Sequence[HeadGate],
        account: Account | None,
        curve_P: Floats,
        edges: dict[str, Contrast | None],
        rolls: Sequence[Roll],
    ) -> Iterator[Finding]:
        """All of them, heads first."""
        for outcome, found in losses.items():
            for loss in found:
                yield from self._loss(loss, outcome)
        for name, head in contrasts.items():
            detail = {"unit": name, "phases": list(head.phases), "smallest_detectable_effect": head.smallest}
            yield self._finding("head_contrast", head.estimate, detail=detail)
        for gate in gates:
            detail = {"unit": f"L{gate.layer}.H{gate.head}", "windows": gate.windows}
            yield self._finding("gate_recurrence", Estimate(gate.recurrence), detail=detail)
            yield self._finding("gate_entropy", Estimate(gate.entropy), detail=detail)
        if account is not None:
            detail = {
                k: v
                for k, v in _json(_account(account, curve_P)).items()
                if k not in ("link", "keep", "heads")
            }
            yield self._finding(
                "account", Estimate(float(account.weakest)), residue=account.weakest, detail=detail
            )
        for name, edge in edges.items():
            if edge is not None:
                detail = {"boundary": name, "phases": list(edge.phases)}
                yield self._finding("boundary_contrast", edge.estimate, detail=detail)
        won = [(roll.won.estimate, roll.slots) for roll in rolls if roll.won is not None]
        if won:
            estimate, slots = max(won, key=lambda one: one[0].value or 0.0)
            yield self._finding("boundary_won", estimate, detail={"slots": slots, "rolls": len(won)})

    def _loss(self, loss: Loss, outcome: Outcome) -> Iterator[Finding]:
        unit = {"unit": loss.unit}
        yield self._finding(
            "mean_loss",
            loss.mean,
            outcome=outcome,
            p_value=loss.mean_p,
            detail={**unit, "p_holm": loss.mean_p_holm},
        )
        for phase, (value, low, high) in enumerate(zip(loss.phase_P, loss.low_P, loss.high_P, strict=True)):
            estimate = Estimate(float(value), float(low), float(high))
            yield self._finding("loss_at_phase", estimate, outcome=outcome, residue=phase, detail=unit)
        detail = {**unit, "p_holm": loss.p_holm, "null_95": loss.null_95, "phase_sd": asdict(loss.phase_sd)}
        yield self._finding(
            "specialisation", Estimate(loss.index), outcome=outcome, p_value=loss.p, detail=_json(detail)
        )

    def _finding(self, name: str, estimate: Estimate, **fields: Any) -> Finding:
        ends = {key: _json(value) for key, value in asdict(estimate).items()}
        return Finding(name=name, method=METHODS[name], **self.common, **ends, **fields)
