"""Two conditions that answered the same trials: by how much one recalls more, and whether their curves differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError, plain
from ..records import Observation
from .conditions import Condition
from .fold import identified_fold, mean_rate, phase_effects, within_blocks
from .intervals import Estimate, Rates, clustered_t
from .permutation import permutation_p, quadratic_form
from .phase_effect import SHARES, phase_sd
from .table import tabulate


@dataclass(frozen=True)
class Comparison:
    """What changed from one condition to another.

    Attributes:
        before, after: their names.
        trials: that both answered.
        mean_before, mean_after: mean accuracy on these.
        change: of the mean, paired over contexts, with its cluster t interval.
        change_p: of whether the mean changed, by flipping the signs of whole contexts.
        spread_before, spread_after: phase SD of each, at the stride of the second.
        curves_p: of whether the phase curves differ, by flipping the signs of whole contexts.
        stride: at which phases were compared.
    """

    before: str
    after: str
    trials: int
    mean_before: float
    mean_after: float
    change: Estimate
    change_p: float
    spread_before: Estimate
    spread_after: Estimate
    curves_p: float
    stride: int


def compare_conditions(
    before: Condition, after: Condition, rng: np.random.Generator, draws: int = 2000
) -> Comparison:
    """Compare two conditions trial by trial.

        d_c = what context c adds to the difference        T = (Σ_c d_c)ᵀ (Gᵀ G)⁺ (Σ_c d_c)

    If nothing changed, either condition could have given either answer to all of a context: each context's difference
    is then as likely as its negative, and T is held against those with signs drawn for whole contexts.

    Args:
        before: the baseline.
        after: what is held against it.
        rng: of the signs.
        draws: how many.

    Raises:
        UsageError: if they were not asked the same trials, or share too few.
    """
    one, other = _shared(before, after)
    tables = [tabulate(part) for part in (one, other)]
    fold = identified_fold(tables[1], after.coordinate, after.fold)
    rates = [mean_rate(table, "accuracy") for table in tables]
    paired = Rates(
        rates[1].rate_R - rates[0].rate_R, rates[1].trials_R, rates[1].deviation_CR - rates[0].deviation_CR
    )
    low, high = clustered_t(paired)
    moved_CLQ = within_blocks(
        tables[1].outcomes["accuracy"] - tables[0].outcomes["accuracy"], tables[1], fold.trend_NK
    )
    signs_DC = rng.choice((-1.0, 1.0), (draws, tables[1].n_clusters))
    signs_DC = np.vstack([np.ones((1, tables[1].n_clusters)), signs_DC])
    own_C = (tables[1].outcomes["accuracy"] - tables[0].outcomes["accuracy"]).sum(axis=(1, 2))
    spread = [phase_sd(phase_effects(table, "accuracy", fold), SHARES) for table in tables]
    return Comparison(
        before=before.name,
        after=after.name,
        trials=len(one),
        mean_before=float(rates[0].rate_R[0]),
        mean_after=float(rates[1].rate_R[0]),
        change=Estimate(float(paired.rate_R[0]), float(low[0]), float(high[0])),
        change_p=permutation_p((signs_DC @ own_C) ** 2),
        spread_before=spread[0],
        spread_after=spread[1],
        curves_p=permutation_p(quadratic_form(signs_DC @ fold.cluster_sums(moved_CLQ), fold.inverse_SS)),
        stride=after.fold,
    )


def _shared(before: Condition, after: Condition) -> tuple[list[Observation], list[Observation]]:
    """The trials that both answered, in the same order."""
    answered = {one.trial: one for one in before.observations}
    pairs = [(answered[two.trial], two) for two in after.observations if two.trial in answered]
    if not pairs:
        raise UsageError(
            f"{plain(before.name)} and {plain(after.name)} were not asked the same trials; measure both with the same "
            "protocol, settings and --seed"
        )
    return [one for one, _ in pairs], [two for _, two in pairs]


def matched(before: Sequence[Condition], after: Sequence[Condition]) -> list[tuple[Condition, Condition]]:
    """Which conditions of two runs are compared: those of one name, else the only ones of one protocol.

    Raises:
        UsageError: if none fit.
    """
    pairs = []
    for one in after:
        own = [other for other in before if other.described.name == one.described.name]
        like = [other for other in before if other.protocol == one.protocol]
        alone = len([other for other in after if other.protocol == one.protocol]) == len(like) == 1
        if own or alone:
            pairs.append(((own or like)[0], one))
    if not pairs:
        names = [", ".join(plain(one.described.name) for one in side) for side in (before, after)]
        raise UsageError(
            f"no condition of {names[1]} has a counterpart among {names[0]}; name conditions alike"
        )
    return pairs
