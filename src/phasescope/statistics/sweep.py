"""From a padding sweep to its findings: flips, period, safe numbers of pads, and how many to add.

Suffixes: B block (a prompt under one padding family), C prompt, L number of pads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from ..errors import UsageError
from ..records import Finding, Observation
from .fold import Fold, fold_table, trend_basis, within_blocks
from .intervals import SIGNIFICANT, wilson
from .period import CANDIDATES, find_period
from .phase_effect import noncentrality
from .table import Coordinate, Floats, Ints, Outcome, Table, tabulate

METHODS = {
    "sweep_mean": "mean over all trials; no interval, as the lengths are chosen, not drawn",
    "flips": "how often the most probable token (for a scorer, the verdict) changes from one number of pads to the "
    "next, in one prompt under one padding family",
    "period": "smallest p over candidate strides of the phase fold and of a single phase, on the mean over padding "
    "families, without each prompt's mean and cubic trend; its p by permuting the numbers of pads within each "
    "prompt, jointly for all its families, the trend fitted again each time, and each fold set against a smooth "
    "curve that is as flexible; named is the smallest stride that its multiples do not improve",
    "sweep_residue": "share of right answers among the trials with that number of pads mod the stride; Wilson's "
    "interval for the share of (prompt, number of pads) pairs at which every family was right",
    "pads_to_add": "smallest measured number of pads whose residue was right in every trial of every prompt and "
    "family",
}


@dataclass(frozen=True)
class _Sweep:
    """One condition's answers, as a table and as observations by block and length."""

    table: Table
    coordinate: Coordinate
    block_B: list[tuple[str, str]]
    length_L: Ints
    right_BL: npt.NDArray[np.bool_]
    seen_BL: npt.NDArray[np.object_]

    @property
    def prompts(self) -> dict[str, list[int]]:
        """The prompts in order of appearance, with the rows of their blocks."""
        rows: dict[str, list[int]] = {}
        for row, (prompt, _) in enumerate(self.block_B):
            rows.setdefault(prompt, []).append(row)
        return rows

    def finding(self, name: str, value: float | None, **fields: Any) -> Finding:
        """A finding about this condition."""
        counts = {"n_blocks": len(self.block_B), "n_clusters": len(self.prompts)}
        shared = {"condition": self.table.condition, "method": METHODS[name], "coordinate": self.coordinate}
        return Finding(name=name, value=value, **{**shared, **counts, **fields})


def analyse_sweep(
    observations: Sequence[Observation],
    *,
    stride: int | None,
    comparable: bool = False,
    coordinate: Coordinate = "source",
    rng: np.random.Generator,
    draws: int = 2000,
) -> list[Finding]:
    """Everything that is found of one condition's padding sweep.

    The period is searched in the best outcome that all trials have: the margin over the rival, else the
    log-probability, else the score; and in the score. One global p covers all candidate strides.

    Args:
        observations: of one condition.
        stride: the model's own stride; None for a model without a grid, or with an unknown one.
        comparable: whether the positions of different prompts mean the same, because what is asked about is
            marked in them. Otherwise every prompt has a phase profile of its own.
        coordinate: the position that the sweep moves.
        rng: of the permutations.
        draws: permutations per test.

    Raises:
        UsageError: if the observations are of several conditions, or no block has two lengths.
    """
    sweep = _sweep(_complete(observations), coordinate)
    table = sweep.table
    strides = [*CANDIDATES, *([stride] if stride else [])]
    primary = next(o for o in ("margin", "logprob", "accuracy") if o in table.outcomes)
    outcomes: list[Outcome] = list(dict.fromkeys((primary, "accuracy")))
    means = {outcome: float(values_CLQ[table.asked].mean()) for outcome, values_CLQ in table.outcomes.items()}
    findings = [sweep.finding("sweep_mean", mean, outcome=outcome) for outcome, mean in means.items()]
    findings += _flips(sweep)
    periods = [_period(sweep, o, strides, stride, comparable, rng, draws) for o in outcomes]
    periods[0].detail["primary"] = True
    found = periods[0].value
    used = int(found) if found is not None else stride
    residues = _residues(sweep, used) if used else ()
    return [*findings, *periods, *residues, _advice(sweep, used, "found" if found is not None else "own")]


def _complete(observations: Sequence[Observation]) -> list[Observation]:
    """The observations that make complete blocks: all blocks at the lengths they share, or whole blocks only.

    Where a trial was dropped, either its length is left out for all or its block is, whichever keeps more.
    """
    blocks: dict[tuple[str, str], set[int]] = {}
    for o in observations:
        blocks.setdefault((o.cluster, o.block), set()).add(o.layout)
    if not blocks:
        raise UsageError("no observations, so nothing to compare; measure something first")
    shared = set.intersection(*blocks.values())
    everywhere = [o for o in observations if o.layout in shared]
    most = max(map(len, blocks.values()))
    whole = [o for o in observations if len(blocks[o.cluster, o.block]) == most]
    return everywhere if len(shared) > 1 and len(everywhere) >= len(whole) else whole


def _sweep(observations: Sequence[Observation], coordinate: Coordinate) -> _Sweep:
    """Sort complete blocks in order of appearance, and each by length."""
    blocks: dict[tuple[str, str], dict[int, Observation]] = {}
    for o in observations:
        blocks.setdefault((o.cluster, o.block.rpartition("/")[2]), {})[o.layout] = o
    lengths = sorted(set.intersection(*({*block} for block in blocks.values())))
    seen_BL = np.empty((len(blocks), len(lengths)), dtype=object)
    seen_BL[:] = [[block[length] for length in lengths] for block in blocks.values()]
    right_BL = np.array([[o.score >= 0.5 for o in row] for row in seen_BL])
    return _Sweep(tabulate(observations), coordinate, list(blocks), np.array(lengths), right_BL, seen_BL)


def _top(o: Observation) -> object:
    """What counts as another answer: another token, or without tokens another text; for a scorer the verdict."""
    if o.logprob is None:
        return o.score >= 0.5
    return o.answer if o.answer is not None else o.text


def _flips(sweep: _Sweep) -> Iterator[Finding]:
    """Per block the changes from length to length, and the whole strip for a table or figure."""
    lengths = sweep.length_L.tolist()
    for (prompt, family), right_L, row in zip(sweep.block_B, sweep.right_BL, sweep.seen_BL, strict=True):
        top = [_top(o) for o in row]
        margins = [o.margin for o in row]
        detail = {
            "prompt": prompt,
            "family": family,
            "at": [lengths[i] for i in range(1, len(top)) if top[i] != top[i - 1]],
            "lengths": lengths,
            "positions": [o.source_position for o in row],
            "right": right_L.tolist(),
            "top": [o.text if o.text is not None else f"id {o.answer}" for o in row],
            "logprob": [o.logprob for o in row],
            "rival_logprob": [o.rival_logprob for o in row],
            "scores": [o.score for o in row],
        }
        if None not in margins:
            detail["beats_rival"] = [bool(m > 0) for m in margins if m is not None]
        yield sweep.finding("flips", float(len(detail["at"])), detail=detail, n_blocks=1, n_clusters=1)


def _period(
    sweep: _Sweep,
    outcome: Outcome,
    strides: Sequence[int],
    expected: int | None,
    comparable: bool,
    rng: np.random.Generator,
    draws: int,
) -> Finding:
    """The period of the mean over families, with the smallest phase SD that would have been seen."""
    mean, coordinate = _over_families(sweep.table, outcome), sweep.coordinate
    own = not comparable and mean.n_clusters > 1
    found = find_period(mean, outcome, coordinate, strides, rng, draws, own=own, few=True)
    detail = {
        **found.detail(),
        "smallest_detectable_effect": _smallest(mean, outcome, coordinate, found.tested, own),
        "phase_sd": found.stride and _size(mean, outcome, coordinate, found.stride, own),
        "draws": draws,
        "dropped_blocks": sweep.table.dropped_blocks,
    }
    return sweep.finding(
        "period", found.stride, outcome=outcome, p_value=found.p_value, expected=expected, detail=detail
    )


def _over_families(table: Table, outcome: Outcome) -> Table:
    """One question per prompt: the mean over its families.

    All families put the prompt at the same positions, so they share whatever noise there is in a position;
    as the mean is permuted as one, they do not count as independent.
    """
    questions_C11 = table.asked_CQ.sum(axis=1)[:, None, None]
    values = (table.outcomes[outcome] * table.asked).sum(axis=2, keepdims=True) / questions_C11
    return replace(
        table,
        source_CLQ=table.source_CLQ[:, :, :1],
        query_CLQ=table.query_CLQ[:, :, :1],
        asked_CQ=table.asked_CQ[:, :1],
        outcomes={outcome: values},
    )


def _fit(
    table: Table, outcome: Outcome, coordinate: Coordinate, stride: int, own: bool
) -> tuple[Fold, Floats, float, int]:
    """A fold, the effects of its phases, the sum of squares that they leave, and the degrees of freedom of that."""
    trend = trend_basis(table, coordinate, own=own)
    design = fold_table(table, coordinate, stride, trend, own=own)
    effect_S, left_CLQ = design.fit(within_blocks(table.outcomes[outcome], table, trend))
    rest = left_CLQ.size - table.n_clusters - trend.shape[1] - design.contrasts
    return design, effect_S, float(left_CLQ.reshape(-1) @ left_CLQ.reshape(-1)), rest


def _size(table: Table, outcome: Outcome, coordinate: Coordinate, stride: int, own: bool) -> float:
    """Phase SD at a stride, less what noise adds to it; the mean over prompts where each has its own profile."""
    design, effect_S, left, rest = _fit(table, outcome, coordinate, stride, own)
    noise = left / max(rest, 1) * float(np.trace(design.inverse_SS))
    return float(np.sqrt(max(float(effect_S @ effect_S) - noise, 0.0) / len(effect_S)))


def _smallest(
    table: Table, outcome: Outcome, coordinate: Coordinate, strides: Sequence[int], own: bool
) -> float | None:
    """Phase SD that would have been found at each tested stride with 80 % power, at the worst of them.

        F = (SS_phase / d) / (SS_rest / e)        non-centrality λ = N tau² / σ²

    with d phase contrasts, e what trend and phases leave, the level shared among strides, and σ² at the upper
    end of its one-sided 90 % interval: a few lengths know their own noise badly, and a limit must not flatter.
    """
    effects = []
    for stride in strides:
        design, _, left, e = _fit(table, outcome, coordinate, stride, own)
        d = design.contrasts
        shift = noncentrality(d, e, SIGNIFICANT / len(strides), reach=1e6) if min(d, e) >= 1 else None
        if shift is not None:
            variance = left / stats.chi2.ppf(0.1, e)
            effects.append(float(np.sqrt(shift * variance / design.groups.label_CLQ.size)))
    return max(effects, default=None)


def _residues(sweep: _Sweep, stride: int) -> Iterator[Finding]:
    """Per residue of the number of pads: how many trials were right, and in how many lengths all of them."""
    for residue in np.unique(sweep.length_L % stride).tolist():
        at_L = sweep.length_L % stride == residue
        right_BL = sweep.right_BL[:, at_L]
        together = np.array([right_BL[rows].all(axis=0) for rows in sweep.prompts.values()])
        low, high = wilson(np.array(together.mean()), np.array(float(together.size)))
        margins = [o.margin for row in sweep.seen_BL[:, at_L].tolist() for o in row]
        detail = {
            "trials": int(right_BL.size),
            "right": int(right_BL.sum()),
            "lengths": int(together.size),
            "right_lengths": int(together.sum()),
            "safe": bool(right_BL.all()),
            "mean_margin": None if None in margins else float(np.mean(np.array(margins, dtype=float))),
        }
        place = {"stride": stride, "residue": residue, "low": float(low), "high": float(high)}
        yield sweep.finding("sweep_residue", float(right_BL.mean()), **place, detail=detail)


def _safe_pads(right_BL: npt.NDArray[np.bool_], length_L: Ints, stride: int) -> tuple[list[int], int | None]:
    """The residues at which every trial was right, and the first length that has one."""
    seen = np.unique(length_L % stride).tolist()
    safe = [residue for residue in seen if right_BL[:, length_L % stride == residue].all()]
    return safe, next((length for length in length_L.tolist() if length % stride in safe), None)


def _advice(sweep: _Sweep, stride: int | None, source: str) -> Finding:
    """How many pads to add, for all prompts together and for each, and whether unseen lengths agree."""
    right_BL, length_L = sweep.right_BL, sweep.length_L
    state = "all" if right_BL.all() else "some" if right_BL.any() else "none"
    detail: dict[str, Any] = {"state": state, "stride": stride, "stride_from": source if stride else None}
    add = None
    if stride:
        safe, add = _safe_pads(right_BL, length_L, stride)
        detail |= {"safe": safe, "held_out": _held_out(right_BL, length_L, stride), "prompts": {}}
        for prompt, rows in sweep.prompts.items():
            own, own_add = _safe_pads(right_BL[rows], length_L, stride)
            detail["prompts"][prompt] = {"safe": own, "add": own_add}
    detail["always_right"] = length_L[right_BL.all(axis=0)].tolist()
    return sweep.finding("pads_to_add", add, stride=stride, detail=detail)


def _held_out(right_BL: npt.NDArray[np.bool_], length_L: Ints, stride: int) -> dict[str, int]:
    """How often residues were right at lengths that did not choose them, of how many trials.

    Each turn of the stride is left out once: the residues that were right in all others are chosen, and tried
    there. Choosing residues by the trials that then praise them would flatter.
    """
    turn_L = (length_L - length_L[0]) // stride
    tried = []
    for turn in np.unique(turn_L):
        out_L = turn_L == turn
        chosen, _ = _safe_pads(right_BL[:, ~out_L], length_L[~out_L], stride)
        tried.append(right_BL[:, out_L & np.isin(length_L % stride, chosen)])
    return {"right": sum(int(t.sum()) for t in tried), "trials": sum(int(t.size) for t in tried)}
