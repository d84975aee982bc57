"""From a padding sweep to its findings: flips, period, safe numbers of pads, and how many to add.

Suffixes: B block (a prompt under one padding family), C prompt, L number of pads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from ..errors import UsageError
from ..records import Finding, Observation
from .correction import SIGNIFICANT
from .fold import fold_table, trend_basis, within_blocks
from .intervals import wilson
from .period import CANDIDATES, find_period
from .table import Coordinate, Ints, Outcome, Table, tabulate

POWER = 0.8
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
    """One condition's answers by block and length, and what all its findings have in common."""

    condition: str
    coordinate: Coordinate
    block_B: list[tuple[str, str]]
    length_L: Ints
    right_BL: npt.NDArray[np.bool_]
    seen_BL: npt.NDArray[np.object_]
    dropped_blocks: int

    @property
    def prompts(self) -> list[str]:
        """The prompts in order of appearance."""
        return list(dict.fromkeys(prompt for prompt, _ in self.block_B))

    def rows(self, prompt: str) -> list[int]:
        """The blocks of a prompt."""
        return [index for index, (name, _) in enumerate(self.block_B) if name == prompt]

    def finding(self, name: str, value: float | None, **fields: Any) -> Finding:
        """A finding about this condition."""
        given = {"n_blocks": len(self.block_B), "n_clusters": len(self.prompts), **fields}
        return Finding(
            condition=self.condition,
            name=name,
            value=value,
            method=METHODS[name],
            coordinate=self.coordinate,
            **given,
        )


def analyse_sweep(
    observations: Sequence[Observation],
    *,
    stride: int | None,
    comparable: bool = False,
    coordinate: Coordinate = "source",
    candidates: Sequence[int] | None = None,
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
        candidates: strides that are looked for; the model's own is always added.
        rng: of the permutations.
        draws: permutations per test.

    Raises:
        UsageError: if the observations are of several conditions, or no block has two lengths.
    """
    kept = _complete(observations)
    table = tabulate(kept)
    sweep = _sweep(kept, table, coordinate)
    strides = sorted({*(candidates or CANDIDATES), *([stride] if stride else [])})
    primary = next(o for o in ("margin", "logprob", "accuracy") if o in table.outcomes)
    outcomes: list[Outcome] = list(dict.fromkeys((primary, "accuracy")))
    findings = [*_means(sweep, table), *_flips(sweep)]
    periods = [_period(sweep, table, o, strides, stride, comparable, rng, draws) for o in outcomes]
    periods[0].detail["primary"] = True
    found = periods[0].value
    used = int(found) if found is not None else stride
    residues = list(_residues(sweep, used)) if used else []
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


def _sweep(observations: Sequence[Observation], table: Table, coordinate: Coordinate) -> _Sweep:
    """Sort observations by block, in order of appearance, and length."""
    blocks: dict[tuple[str, str], dict[int, Observation]] = {}
    for o in observations:
        blocks.setdefault((o.cluster, o.block.rpartition("/")[2]), {})[o.layout] = o
    lengths = sorted(set.intersection(*({*block} for block in blocks.values())))
    seen_BL = np.empty((len(blocks), len(lengths)), dtype=object)
    seen_BL[:] = [[block[length] for length in lengths] for block in blocks.values()]
    right_BL = np.array([[o.score >= 0.5 for o in row] for row in seen_BL])
    return _Sweep(
        table.condition, coordinate, list(blocks), np.array(lengths), right_BL, seen_BL, table.dropped_blocks
    )


def _means(sweep: _Sweep, table: Table) -> Iterator[Finding]:
    for outcome, values_CLQ in table.outcomes.items():
        mean = float(values_CLQ[table.asked].mean())
        yield sweep.finding("sweep_mean", mean, outcome=outcome)


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
    table: Table,
    outcome: Outcome,
    strides: Sequence[int],
    expected: int | None,
    comparable: bool,
    rng: np.random.Generator,
    draws: int,
) -> Finding:
    """The period of the mean over families, with the smallest phase SD that would have been seen."""
    mean = _over_families(table, outcome)
    own = not comparable and table.n_clusters > 1
    found = find_period(mean, outcome, sweep.coordinate, strides, rng, draws, own=own, few=True)
    detail = {
        **found.detail(),
        "smallest_detectable_effect": _smallest(mean, outcome, sweep.coordinate, found.tested, own),
        "phase_sd": None
        if found.stride is None
        else _size(mean, outcome, sweep.coordinate, found.stride, own),
        "draws": draws,
        "dropped_blocks": sweep.dropped_blocks,
    }
    value = None if found.stride is None else float(found.stride)
    return sweep.finding(
        "period", value, outcome=outcome, p_value=found.p_value, expected=expected, detail=detail
    )


def _over_families(table: Table, outcome: Outcome) -> Table:
    """One question per prompt: the mean over its families.

    All families put the prompt at the same positions, so they share whatever noise there is in a position;
    as the mean is permuted as one, they do not count as independent.
    """
    asked_C1 = table.asked_CQ.sum(axis=1)[:, None, None]
    values = (table.outcomes[outcome] * table.asked).sum(axis=2, keepdims=True) / asked_C1
    return replace(
        table,
        source_CLQ=table.source_CLQ[:, :, :1],
        query_CLQ=table.query_CLQ[:, :, :1],
        asked_CQ=table.asked_CQ[:, :1],
        outcomes={outcome: values},
    )


def _size(table: Table, outcome: Outcome, coordinate: Coordinate, stride: int, own: bool) -> float:
    """Phase SD at a stride, less what noise adds to it; the mean over prompts where each has its own profile."""
    trend = trend_basis(table, coordinate, own=own)
    design = fold_table(table, coordinate, stride, trend, own=own)
    value_N = within_blocks(table.outcomes[outcome], table, trend).reshape(-1)
    effect_S = design.inverse_SS @ (design.column_NS.T @ value_N)
    left_N = value_N - design.column_NS @ effect_S
    d = int(np.linalg.matrix_rank(design.inverse_SS, hermitian=True))
    e = max(len(value_N) - table.n_clusters - trend.shape[1] - d, 1)
    noise = float(left_N @ left_N) / e * float(np.trace(design.inverse_SS))
    return float(np.sqrt(max(float(effect_S @ effect_S) - noise, 0.0) / len(effect_S)))


def _smallest(
    table: Table, outcome: Outcome, coordinate: Coordinate, strides: Sequence[int], own: bool
) -> float | None:
    """Phase SD that would have been found at each tested stride with 80 % power, at the worst of them.

        F = (SS_phase / d) / (SS_rest / e)        non-centrality λ = N tau² / σ²

    with d phase contrasts, e what trend and phases leave, the level shared among strides, and σ² at the upper
    end of its one-sided 90 % interval: a few lengths know their own noise badly, and a limit must not flatter.
    """
    trend = trend_basis(table, coordinate, own=own)
    value_N = within_blocks(table.outcomes[outcome], table, trend).reshape(-1)
    effects = []
    for stride in strides:
        design = fold_table(table, coordinate, stride, trend, own=own)
        d = int(np.linalg.matrix_rank(design.inverse_SS, hermitian=True))
        e = len(value_N) - table.n_clusters - trend.shape[1] - d
        if d < 1 or e < 1:
            continue
        left_N = value_N - design.column_NS @ (design.inverse_SS @ (design.column_NS.T @ value_N))
        critical = stats.f.isf(SIGNIFICANT / len(strides), d, e)
        reach = 1e6
        if stats.ncf.sf(critical, d, e, reach) < POWER:
            continue
        shift = optimize.brentq(lambda x, c=critical, d=d, e=e: stats.ncf.sf(c, d, e, x) - POWER, 1e-6, reach)
        variance = left_N @ left_N / stats.chi2.ppf(0.1, e)
        effects.append(float(np.sqrt(shift * variance / len(value_N))))
    return max(effects, default=None)


def _residues(sweep: _Sweep, stride: int) -> Iterator[Finding]:
    """Per residue of the number of pads: how many trials were right, and in how many lengths all of them."""
    for residue in range(stride):
        at_L = sweep.length_L % stride == residue
        if not at_L.any():
            continue
        right_BL = sweep.right_BL[:, at_L]
        together = np.array([right_BL[sweep.rows(prompt)].all(axis=0) for prompt in sweep.prompts])
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
        yield sweep.finding(
            "sweep_residue",
            float(right_BL.mean()),
            low=float(low),
            high=float(high),
            stride=stride,
            residue=residue,
            detail=detail,
        )


def _safe(right_BL: npt.NDArray[np.bool_], length_L: Ints, stride: int) -> list[int]:
    """The residues at which every trial was right."""
    seen = np.unique(length_L % stride)
    return [int(r) for r in seen if right_BL[:, length_L % stride == r].all()]


def _advice(sweep: _Sweep, stride: int | None, source: str) -> Finding:
    """How many pads to add, for all prompts together and for each, and whether unseen lengths agree.

    `held_out`: each turn of the stride in turn is left out, the residues that were right in all others are
    chosen, and counted is how often they were right in the turn left out; choosing residues by the trials
    that then praise them would flatter.
    """
    states = {"all": bool(sweep.right_BL.all()), "none": not sweep.right_BL.any()}
    state = next((name for name, holds in states.items() if holds), "some")
    detail: dict[str, Any] = {"state": state, "stride": stride, "stride_from": source if stride else None}
    add = None
    if stride:
        safe = _safe(sweep.right_BL, sweep.length_L, stride)
        add = _first(sweep.length_L, stride, safe)
        detail |= {"safe": safe, "held_out": _held_out(sweep.right_BL, sweep.length_L, stride), "prompts": {}}
        for prompt in sweep.prompts:
            own = _safe(sweep.right_BL[sweep.rows(prompt)], sweep.length_L, stride)
            detail["prompts"][prompt] = {"safe": own, "add": _first(sweep.length_L, stride, own)}
    always_L = sweep.right_BL.all(axis=0)
    detail["always_right"] = sweep.length_L[always_L].tolist()
    return sweep.finding("pads_to_add", None if add is None else float(add), stride=stride, detail=detail)


def _first(length_L: Ints, stride: int, residues: Sequence[int]) -> int | None:
    return next((int(length) for length in length_L if length % stride in residues), None)


def _held_out(right_BL: npt.NDArray[np.bool_], length_L: Ints, stride: int) -> dict[str, int]:
    """Right and all trials at residues that were chosen without them."""
    turn_L = (length_L - length_L[0]) // stride
    right = trials = 0
    for turn in np.unique(turn_L):
        out_L = turn_L == turn
        chosen = _safe(right_BL[:, ~out_L], length_L[~out_L], stride) if (~out_L).any() else []
        tried = right_BL[:, out_L & np.isin(length_L % stride, chosen)]
        right, trials = right + int(tried.sum()), trials + int(tried.size)
    return {"right": right, "trials": trials}
