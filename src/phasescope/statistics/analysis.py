"""From the observations of one condition to its findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..errors import UsageError
from ..records import Finding, Observation
from .fold import Fold, fold_table, identified_fold, mean_rate, phase_effects, phase_rates, within_blocks
from .interaction import find_interaction
from .intervals import SIGNIFICANT, Estimate, Rates, clustered_t, clustered_wilson, wilson
from .period import CANDIDATES
from .permutation import paired_test, permutation_p, quadratic_form
from .phase_effect import POWER, SHARES, phase_sd, smallest_effect
from .position import PositionEffects, position_effects
from .split_half import LOWEST, WIDEST, split_half
from .table import Coordinate, Outcome, Table, tabulate

METHODS = {
    "mean_accuracy": "share of right answers; Wilson's interval at the effective number of trials over "
    "clusters (t on clusters − 1)",
    "mean_logprob": "mean log-probability of the right answer; cluster t interval",
    "phase_rate": "mean at one phase; Wilson's interval at the effective number of trials over clusters "
    "(log-probabilities: cluster t interval)",
    "residue_rate": "mean at one residue; Wilson's interval at the effective number of trials over clusters "
    "(beside it, in the detail, plain Wilson, which takes trials as independent)",
    "worst_residue": "residue picked on one half of the clusters and measured on the other, both ways, "
    "averaged over 32 random halvings; interval for the lowest true rate by inverting a sign-flip test",
    "phase_sd": "SD over phases of the effects within blocks, less the variance that deleting one cluster at "
    "a time shows; interval by inverting the test of their sum of squares",
    "split_half_gap": "best and worst phase picked on one half of the clusters and measured on the other, "
    "both ways, averaged over 32 random halvings; interval for the largest true gap by inverting a "
    "sign-flip test",
    "raw_gap": "largest less smallest phase effect within blocks, which noise inflates; beside it the mean "
    "and 95th percentile of the same when the layouts of whole clusters are permuted",
    "phase_test": "sum of squares over phases, without block means and a smooth trend in position; p by "
    "permuting the layouts of whole clusters",
    "paired_test": "Cochran's Q over blocks; p by permuting the layouts of whole clusters (beside it, in the "
    "detail, the chi-squared p, for independent blocks only)",
    "period": "smallest p over candidate strides of the phase fold and of a single phase, without block means "
    "and a cubic trend; its p by permuting the layouts of whole clusters; named is the smallest stride that "
    "its multiples do not improve (p ≤ 0.002)",
    "depth": "change along a cubic in position from the lowest to the highest position of a block, without block "
    "means; p by Hotelling's T-squared over clusters",
    "steps": "largest step among those that explain most of what is beyond block means, a cubic trend and the period; "
    "p of the largest single step by permuting the layouts of whole clusters",
    "inside_gap": "split-half gap among the phases that no boundary of windows loses",
    "boundary_loss": "mean over the phases inside windows less the mean over those that a boundary loses, of the "
    "effects within blocks; cluster t interval",
    "interaction": "dependence on (source ± query) modulo the stride beyond the residues of either; p by permuting the "
    "layouts of whole clusters; no p where the layouts cannot tell them apart",
    "smallest_detectable_effect": "phase SD that the phase test at 5 % would have found with 80 % power, "
    "from the noise over clusters",
}


def analyse(
    observations: Sequence[Observation],
    *,
    stride: int | None,
    fold: int | None = None,
    residues: int = 24,
    coordinate: Coordinate = "source",
    boundary: Sequence[int] = (),
    rng: np.random.Generator,
    draws: int = 2000,
) -> list[Finding]:
    """Everything that is found of one condition.

    Args:
        observations: of one condition.
        stride: the model's own stride; None for a model without a grid, or with an unknown one.
        fold: modulus at which phases are compared; by default the stride.
        residues: modulus of the residue rates and the worst residue.
        coordinate: the position that is folded, `source` or `query`.
        boundary: residues modulo the stride that a boundary of windows loses; see `grid.boundary_residues`.
        rng: of permutations, halvings and resamples.
        draws: permutations per test.

    Returns:
        findings of accuracy, then of the accuracy among candidates and of the log-probability where all
        trials have them.

    Raises:
        UsageError: if the observations are of several conditions, or nothing can be compared.
    """
    table = tabulate(observations)
    modulus = fold or stride
    if modulus is None or min(modulus, stride or 2, residues) < 2:
        raise UsageError(
            f"stride {stride}, fold {fold}, residues {residues}: each is at least 2, and a condition without a stride "
            "needs a fold"
        )
    design = identified_fold(table, coordinate, modulus)
    effects = {outcome: phase_effects(table, outcome, design) for outcome in table.outcomes}
    view = _View(table, coordinate, stride, design, effects, rng, draws)
    strides = [*CANDIDATES, *([stride] if stride else [])]
    findings = [*_core(view, "accuracy", strides), *_further(view), _worst(view, "accuracy", residues)]
    if stride is not None and stride == modulus:
        findings += _inside(view, boundary)
    findings += _rates(view, "phase_rate", "accuracy", modulus)
    findings += _rates(view, "residue_rate", "accuracy", residues)
    if "candidate_accuracy" in table.outcomes:
        findings += [_mean(view, "candidate_accuracy"), _spread(view, "candidate_accuracy")]
        findings += [_worst(view, "candidate_accuracy", residues)]
    if "logprob" in table.outcomes:
        findings += [*_core(view, "logprob", strides), *_rates(view, "phase_rate", "logprob", modulus)]
    return findings


@dataclass(frozen=True)
class _View:
    """One table seen through one fold, its phase effects within blocks, and the draws to be spent on it."""

    table: Table
    coordinate: Coordinate
    stride: int | None
    design: Fold
    effects: dict[Outcome, Rates]
    rng: np.random.Generator
    draws: int

    def beyond(self, outcome: Outcome, found: PositionEffects) -> _View | None:
        """The same beyond steps that explain more than a period, if those leave all phases comparable."""
        if not found.lead:
            return None
        design = fold_table(self.table, self.coordinate, self.design.modulus, found.trend_NK)
        if not design.identified:
            return None
        effects = {**self.effects, outcome: phase_effects(self.table, outcome, design)}
        return replace(self, design=design, effects=effects, rng=self.rng.spawn(1)[0])

    def compared(self, estimate: Estimate) -> Estimate:
        """The estimate, or none where the layouts are too few to compare every phase with every other."""
        return estimate if self.design.identified else Estimate(None)

    def smallest(self, outcome: Outcome, level: float = SIGNIFICANT) -> float | None:
        """Phase SD that would have been seen at the fold, if its phases can be compared."""
        return self.compared(Estimate(smallest_effect(self.effects[outcome], level))).value

    def finding(self, name: str, outcome: Outcome, estimate: Estimate, **fields: Any) -> Finding:
        """A finding with what all of this table have in common."""
        return Finding(
            condition=self.table.condition,
            name=name,
            outcome=outcome,
            **asdict(estimate),
            method=METHODS[name],
            n_blocks=self.table.n_blocks,
            n_clusters=self.table.n_clusters,
            coordinate=self.coordinate,
            **fields,
        )

    def at_fold(self, name: str, outcome: Outcome, estimate: Estimate, **fields: Any) -> Finding:
        """A finding about the phases of the fold."""
        return self.finding(name, outcome, estimate, stride=self.design.modulus, **fields)


def _core(view: _View, outcome: Outcome, strides: Sequence[int]) -> Iterator[Finding]:
    """What is found of every outcome: mean, phase SD, split-half and raw gap, phase test, period, depth, steps."""
    yield _mean(view, outcome)
    phases = [*_phases(view, outcome)]
    found = position_effects(view.table, outcome, view.coordinate, strides, view.rng, view.draws)
    if (beyond := view.beyond(outcome, found)) is not None:
        phases = [*_phases(beyond, outcome)]
    yield from phases
    yield _period(beyond or view, outcome, found)
    yield _depth(view, outcome, found)
    yield _steps(view, outcome, found)


def _phases(view: _View, outcome: Outcome) -> Iterator[Finding]:
    """How far the phases of the fold differ, and whether by more than chance."""
    yield _spread(view, outcome)
    halves = split_half(view.effects[outcome], WIDEST, view.rng)
    gap = view.compared(halves.estimate.within(0.0, np.inf if outcome == "logprob" else 1.0))
    detail = {"picked": halves.picked(view.design.phase_S), "unclipped": halves.estimate.value}
    yield view.at_fold("split_half_gap", outcome, gap, detail=detail)
    values_CLQ = within_blocks(view.table.outcomes[outcome], view.table, view.design.trend_NK)
    sum_DS = view.design.permuted(values_CLQ, view.rng, view.draws)
    gap_D = np.ptp(sum_DS @ view.design.inverse_SS, axis=1)
    null = {"null_mean": float(gap_D[1:].mean()), "null_95": float(np.quantile(gap_D[1:], 0.95))}
    yield view.at_fold("raw_gap", outcome, view.compared(Estimate(float(gap_D[0]))), detail=null)
    p_value = permutation_p(quadratic_form(sum_DS, view.design.inverse_SS))
    yield view.at_fold("phase_test", outcome, Estimate(None), p_value=p_value, detail={"draws": view.draws})


def _period(view: _View, outcome: Outcome, effects: PositionEffects) -> Finding:
    """The period with what was searched, and the phase SD (accuracy: in points) that would have been seen."""
    found = effects.period
    smallest = view.smallest(outcome, SIGNIFICANT / max(len(found.tested), 1))
    if smallest is not None and outcome != "logprob":
        smallest *= 100
    detail = {**found.detail(), "smallest_detectable_effect": smallest, "draws": view.draws}
    if found is not effects.alone:
        detail |= {"without_steps": {"period": effects.alone.stride, "p": effects.alone.p_value}}
    estimate = Estimate(found.stride)
    return view.finding(
        "period", outcome, estimate, p_value=found.p_value, expected=view.stride, detail=detail
    )


def _depth(view: _View, outcome: Outcome, effects: PositionEffects) -> Finding:
    """The change from the lowest to the highest position of a block, and whether there is a smooth trend."""
    depth = effects.depth
    return view.finding("depth", outcome, Estimate(depth.change), p_value=depth.p_value)


def _steps(view: _View, outcome: Outcome, effects: PositionEffects) -> Finding:
    """The largest step, where steps explain more than a period does; all of them in the detail."""
    steps = effects.steps
    largest = max(steps.steps, key=lambda step: abs(step.size)).size if effects.stand else None
    detail = {**steps.detail(), "more_than_period": effects.lead, "draws": effects.steps_draws}
    return view.finding("steps", outcome, Estimate(largest), p_value=steps.p_value, detail=detail)


def _further(view: _View) -> Iterator[Finding]:
    """What is found of accuracy only: the paired test, and the smallest effect that would have been seen."""
    modulus, phases = view.design.modulus, len(view.design.phase_S)
    p_value, test = paired_test(view.table, "accuracy", view.coordinate, modulus, view.rng, view.draws)
    yield view.at_fold("paired_test", "accuracy", Estimate(None), p_value=p_value, detail=test)
    smallest = view.smallest("accuracy")
    detail = {
        "single_phase_drop": None if smallest is None else float(smallest * phases / np.sqrt(phases - 1)),
        "power": POWER,
        "level": SIGNIFICANT,
        "dropped_blocks": view.table.dropped_blocks,
    }
    yield view.at_fold("smallest_detectable_effect", "accuracy", Estimate(smallest), detail=detail)


def _inside(view: _View, boundary: Sequence[int]) -> Iterator[Finding]:
    """How far the phases inside the windows differ, what those at a boundary lose, and what acts together."""
    [rng] = view.rng.spawn(1)
    phase_S, effects = view.design.phase_S, view.effects["accuracy"]
    at_S = np.isin(phase_S, boundary)
    detail: dict[str, Any] = {"boundary": list(boundary)}
    if (~at_S).sum() > 1:
        halves = split_half(effects.only(~at_S), WIDEST, rng)
        gap = view.compared(halves.estimate.within(0.0, 1.0))
        picked = halves.picked(phase_S[~at_S])
        yield view.at_fold("inside_gap", "accuracy", gap, detail={**detail, "picked": picked})
    if at_S.any() and not at_S.all():
        loss = effects.contrast(np.where(at_S, -1 / at_S.sum(), 1 / (~at_S).sum()))
        low, high = _interval(loss, "logprob")
        estimate = view.compared(Estimate(float(loss.rate_R[0]), low[0], high[0]))
        yield view.at_fold("boundary_loss", "accuracy", estimate, detail=detail)
    acting = find_interaction(view.table, "accuracy", view.design, rng, view.draws)
    detail = {"together": acting.together, "draws": view.draws}
    yield view.at_fold(
        "interaction", "accuracy", Estimate(acting.spread), p_value=acting.p_value, detail=detail
    )


def _mean(view: _View, outcome: Outcome) -> Finding:
    rate = mean_rate(view.table, outcome)
    low, high = _interval(rate, outcome)
    name = "mean_logprob" if outcome == "logprob" else "mean_accuracy"
    detail = {"dropped_blocks": view.table.dropped_blocks}
    return view.finding(name, outcome, Estimate(float(rate.rate_R[0]), low[0], high[0]), detail=detail)


def _spread(view: _View, outcome: Outcome) -> Finding:
    most = np.inf if outcome == "logprob" else SHARES
    return view.at_fold("phase_sd", outcome, view.compared(phase_sd(view.effects[outcome], most)))


def _worst(view: _View, outcome: Outcome, residues: int) -> Finding:
    """The worst residue: where half of the clusters see it most often, and the rate that the others measure."""
    residue_R, rate = phase_rates(view.table, outcome, view.coordinate, residues)
    halves = split_half(rate, LOWEST, view.rng)
    worst, detail = int(residue_R[halves.weight_S.argmax()]), {"picked": halves.picked(residue_R)}
    lowest = halves.estimate.within(0.0, 1.0)
    return view.finding("worst_residue", outcome, lowest, stride=residues, residue=worst, detail=detail)


def _rates(view: _View, name: str, outcome: Outcome, modulus: int) -> Iterator[Finding]:
    """One rate with its interval per phase or residue that occurs."""
    phase_R, rate = phase_rates(view.table, outcome, view.coordinate, modulus)
    low_R, high_R = _interval(rate, outcome)
    for r, phase in enumerate(phase_R.tolist()):
        estimate = Estimate(float(rate.rate_R[r]), low_R[r], high_R[r])
        detail: dict[str, Any] = {"n": int(rate.trials_R[r])}
        if outcome != "logprob":
            plain_low, plain_high = wilson(rate.rate_R[r], rate.trials_R[r])
            detail |= {"plain_wilson_low": float(plain_low), "plain_wilson_high": float(plain_high)}
        yield view.finding(name, outcome, estimate, stride=modulus, residue=phase, detail=detail)


def _interval(rate: Rates, outcome: Outcome) -> tuple[list[float | None], list[float | None]]:
    """Wilson's interval for shares, t for the rest; none from a single cluster."""
    if len(rate.deviation_CR) < 2:
        return [None] * len(rate.rate_R), [None] * len(rate.rate_R)
    low_R, high_R = clustered_t(rate) if outcome == "logprob" else clustered_wilson(rate)
    return low_R.tolist(), high_R.tolist()
