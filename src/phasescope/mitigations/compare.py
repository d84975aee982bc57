"""With and without, question by question: what a mitigation wins at each phase, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import UsageError
from ..records import Observation, Record
from ..statistics.fold import mean_rate, phase_rates
from ..statistics.intervals import Estimate, Rates, clustered_t
from ..statistics.split_half import LOWEST, Picks, split_half
from ..statistics.table import tabulate

HIGHEST: Picks = ((1, np.argmax),)
"""The best phase alone."""


class Comparison(Record):
    """Two conditions that were asked the same questions in the same layouts.

    Attributes:
        phases: the phases that a key has without the mitigation.
        without, with_: accuracy at each.
        gain: what the mitigation adds at each, with its interval over clusters.
        mean_gain: the same over all.
        worst: the phase that the profile calls the weakest.
        worst_gain: what the mitigation adds there.
        worst_without, worst_with: the lowest phase's accuracy, picked on one half of the clusters and
            measured on the other, so that noise does not pick it.
        best_with: the same for the highest, with the mitigation.
        n_blocks, n_clusters: what it rests on.
    """

    phases: tuple[int, ...]
    without: tuple[float, ...]
    with_: tuple[float, ...]
    gain: tuple[Estimate, ...]
    mean_without: float
    mean_with: float
    mean_gain: Estimate
    worst: int
    worst_gain: Estimate
    worst_without: Estimate
    worst_with: Estimate
    best_with: Estimate
    n_blocks: int
    n_clusters: int


def compare(
    without: Sequence[Observation],
    with_: Sequence[Observation],
    stride: int,
    *,
    worst: int,
    rng: np.random.Generator,
) -> Comparison:
    """Compare two conditions by the phase that each key has where nothing is done about it.

    A mitigation that moves a key gives it another phase; what a user gains is what the question gains, so
    both conditions are folded by the position in the condition without. Only blocks that are complete in both count.

    Args:
        without: all observations of the condition without the mitigation.
        with_: those of the condition with it.
        stride: of the fold.
        worst: the phase that is weakest by a profile from other prompts.
        rng: of the halvings.

    Raises:
        UsageError: if the conditions have no block in common.
    """
    plain, moved = _paired(without, with_)
    before, after = tabulate(plain), tabulate(moved)
    phases, rate = phase_rates(before, "accuracy", "source", stride)
    _, rate_after = phase_rates(after, "accuracy", "source", stride)
    if worst not in phases:
        raise UsageError(f"no key stands at phase {worst} of {stride}; ask at more residues")
    gain = _difference(rate_after, rate)
    mean_after, mean_before = mean_rate(after, "accuracy"), mean_rate(before, "accuracy")
    return Comparison(
        phases=tuple(phases.tolist()),
        without=tuple(rate.rate_R.tolist()),
        with_=tuple(rate_after.rate_R.tolist()),
        gain=tuple(gain),
        mean_without=float(mean_before.rate_R[0]),
        mean_with=float(mean_after.rate_R[0]),
        mean_gain=_difference(mean_after, mean_before)[0],
        worst=worst,
        worst_gain=gain[phases.tolist().index(worst)],
        worst_without=split_half(rate, LOWEST, rng).estimate.within(0, 1),
        worst_with=split_half(rate_after, LOWEST, rng).estimate.within(0, 1),
        best_with=split_half(rate_after, HIGHEST, rng).estimate.within(0, 1),
        n_blocks=before.n_blocks,
        n_clusters=before.n_clusters,
    )


def _paired(
    without: Sequence[Observation], with_: Sequence[Observation]
) -> tuple[list[Observation], list[Observation]]:
    """The trials that both conditions answered, those of the second at the positions that they have in the first."""
    place = {(one.block, one.layout): one for one in without}
    moved = [
        one.model_copy(
            update={
                "source_position": place[one.block, one.layout].source_position,
                "query_position": place[one.block, one.layout].query_position,
            }
        )
        for one in with_
        if (one.block, one.layout) in place
    ]
    both = {(one.block, one.layout) for one in moved}
    plain = [one for one in without if (one.block, one.layout) in both]
    if not plain:
        raise UsageError("the two conditions have no question in common; measure them in one run")
    return plain, moved


def _difference(after: Rates, before: Rates) -> list[Estimate]:
    """After less before, group by group, with the interval of a paired difference over clusters."""
    paired = Rates(after.rate_R - before.rate_R, before.trials_R, after.deviation_CR - before.deviation_CR)
    low_R, high_R = clustered_t(paired)
    return [
        Estimate(*row) for row in zip(paired.rate_R.tolist(), low_R.tolist(), high_R.tolist(), strict=True)
    ]
