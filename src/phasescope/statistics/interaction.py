"""Whether the residues of source and query act together: accuracy that depends on their sum cancels in either alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .designs import Groups, grouped, joint_gram, permuted_sums, trend_cross
from .fold import Fold, inverse, within_blocks
from .period import surprise
from .permutation import permutation_p, quadratic_form
from .table import Floats, Ints, Outcome, Table

Together = Literal["sum", "difference"]
SEEN = 0.05
"""Share of its variation that a contrast of sums must keep beside the residues themselves, to be told from them."""


@dataclass(frozen=True)
class Interaction:
    """The test of an interaction.

    Attributes:
        p_value: of source + query or source − query, whichever is more striking; None where the layouts cannot tell
            either from the residues of source and query themselves.
        together: which of the two is the more striking.
        spread: SD over its residues of what it adds, without sampling noise, in the outcome's units.
    """

    p_value: float | None
    together: Together | None
    spread: float | None


def find_interaction(
    table: Table, outcome: Outcome, fold: Fold, rng: np.random.Generator, draws: int
) -> Interaction:
    """Test whether an outcome depends on (source ± query) mod S beyond the residues of source and of query.

        T = Uᵀ (Hᵀ M H)⁺ U        U = Hᵀ M y        M takes out block means, trend, and both residues

    H holds the indicators of the sum's (or difference's) residues. Either T becomes a p by the gamma distribution of
    its permutations, and the smaller of the two is tested by its place among those of the permutations.

    Args:
        table: the trials.
        outcome: which outcome.
        fold: at the stride S, with its trend.
        rng: of the permutations.
        draws: how many.
    """
    stride = fold.modulus
    source_CLQ, query_CLQ = table.source_CLQ, table.query_CLQ
    mains = [_grouped(table, position % stride) for position in (source_CLQ, query_CLQ)]
    joint: dict[Together, Groups] = {
        "sum": _grouped(table, (source_CLQ + query_CLQ) % stride),
        "difference": _grouped(table, (source_CLQ - query_CLQ) % stride),
    }
    values_CLQ = within_blocks(table.outcomes[outcome], table, fold.trend_NK)
    main_MM = _gram(mains, fold.trend_NK)
    effect_M = inverse(main_MM) @ np.concatenate([one.sums(values_CLQ) for one in mains])
    rest_CLQ = _without(table, values_CLQ, mains, effect_M, fold.trend_NK)
    parts = permuted_sums(rest_CLQ, [*mains, *joint.values(), fold.trend_NK], rng, draws)
    trend_DK = parts[-1]
    main_DM = np.hstack(parts[:2]) - trend_DK @ _crosses(mains, fold.trend_NK)
    found: dict[Together, tuple[Floats, float]] = {}
    for (name, groups), sum_DS in zip(joint.items(), parts[2:4], strict=True):
        whole = _gram([*mains, groups], fold.trend_NK)
        count = len(main_MM)
        share_MS = inverse(main_MM) @ whole[:count, count:]
        left_SS = whole[count:, count:] - whole[count:, :count] @ share_MS
        if not _seen(left_SS, groups.gram()):
            continue
        own_DS = sum_DS - trend_DK @ trend_cross(fold.trend_NK, groups) - main_DM @ share_MS
        effect_DS = own_DS @ inverse(left_SS)
        square_D = (effect_DS**2).sum(axis=1)
        spread = float(np.sqrt(max(square_D[0] - square_D[1:].mean(), 0.0) / groups.count))
        found[name] = surprise(quadratic_form(own_DS, inverse(left_SS))), spread
    if not found:
        return Interaction(None, None, None)
    p_value = permutation_p(np.max([surprise_D for surprise_D, _ in found.values()], axis=0))
    together = max(found, key=lambda name: float(found[name][0][0]))
    return Interaction(p_value, together, found[together][1])


def _grouped(table: Table, phase_CLQ: Ints) -> Groups:
    return grouped(phase_CLQ, table.asked)[2]


def _crosses(groups: list[Groups], trend_NK: Floats) -> Floats:
    return np.hstack([trend_cross(trend_NK, one) for one in groups])


def _gram(groups: list[Groups], trend_NK: Floats) -> Floats:
    """Gᵀ G of several groupings without block means and trend."""
    cross_KX = _crosses(groups, trend_NK)
    gram: Floats = joint_gram(groups) - cross_KX.T @ cross_KX
    return gram


def _without(
    table: Table, values_CLQ: Floats, mains: list[Groups], effect_M: Floats, trend_NK: Floats
) -> Floats:
    """Values without what both residues say of them."""
    fit_CLQ = np.zeros_like(values_CLQ)
    for groups, effect_S in zip(mains, np.split(effect_M, [mains[0].count]), strict=True):
        fit_CLQ += np.append(effect_S, 0.0)[groups.label_CLQ]
    return values_CLQ - within_blocks(fit_CLQ, table, trend_NK)


def _seen(left_SS: Floats, whole_SS: Floats) -> bool:
    """Whether any contrast keeps enough of its variation."""
    largest = float(np.linalg.eigvalsh(whole_SS)[-1])
    return float(np.linalg.eigvalsh(left_SS)[-1]) > SEEN * max(largest, 1.0)
