"""Missing answers: do they go by phase, how many blocks do they break, and how wrong could the estimate be for them?"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from ..observations import Observations
from ..records import Dropped, Finding, Observation
from .fold import identified_fold, phase_rates, within_blocks
from .permutation import permutation_p, quadratic_form
from .table import Coordinate, tabulate

METHOD = (
    "share of planned trials without an answer; p by permuting the layouts of whole clusters, of whether it goes by "
    "phase; beside it mean accuracy if all missing answers were wrong, and if all were right, and the least phase "
    "SD that any answers could make"
)


def find_missing(
    observations: Observations,
    dropped: Sequence[Dropped],
    *,
    stride: int,
    coordinate: Coordinate,
    rng: np.random.Generator,
    draws: int,
) -> Finding:
    """What the trials without an answer may hide.

    Args:
        observations: the answered trials of one condition, at least one.
        dropped: its trials without an answer.
        stride: modulus of the phases.
        coordinate: the position that is folded.
        rng: of the permutations.
        draws: how many.

    Returns:
        a finding `missing`: the share of planned trials; p of whether it goes by phase, None where positions of the
        missing trials are not known or nothing is missing. In its detail the share of `broken_blocks`, the phases that
        are `unseen`, the share `by_phase`, and `bounds` of mean accuracy and phase SD.
    """
    planned = len(observations) + len(dropped)
    blocks, broken = _blocks(observations, dropped)
    seen = {int(p) for p in np.unique(observations.integers(f"{coordinate}_position") % stride)}
    detail: dict[str, Any] = {
        "missing": len(dropped),
        "planned": planned,
        "broken_blocks": broken / blocks,
        "unseen": sorted(set(range(stride)) - seen),
        "draws": draws,
    }
    p_value = None
    if dropped and all(None not in (one.source_position, one.query_position) for one in dropped):
        p_value, further = _by_phase(observations, dropped, stride, coordinate, rng, draws)
        detail |= further
    return Finding(
        condition=observations[0].condition,
        name="missing",
        value=len(dropped) / planned,
        p_value=p_value,
        method=METHOD,
        n_blocks=blocks,
        n_clusters=len(observations.texts("cluster")[1]),
        coordinate=coordinate,
        stride=stride,
        detail=detail,
    )


def _blocks(observations: Observations, dropped: Sequence[Dropped]) -> tuple[int, int]:
    """How many blocks were planned, and how many of them miss an answer."""
    (block_N, blocks), (cluster_N, clusters) = observations.texts("block"), observations.texts("cluster")
    pairs = np.unique(np.stack([cluster_N, block_N]), axis=1).T.tolist()
    answered = {(clusters[cluster], blocks[block]) for cluster, block in pairs}
    broken = {(one.cluster, one.block) for one in dropped}
    return len(answered | broken), len(broken)


def _by_phase(
    observations: Observations,
    dropped: Sequence[Dropped],
    stride: int,
    coordinate: Coordinate,
    rng: np.random.Generator,
    draws: int,
) -> tuple[float | None, dict[str, Any]]:
    """P of whether missing answers go by phase, their share at each, and the bounds."""
    try:
        missing = tabulate([*(_marked(o, 0.0) for o in observations), *(_stand_in(d, 1.0) for d in dropped)])
    except UsageError:  # no two layouts to compare
        return None, {}
    design = identified_fold(missing, coordinate, stride)
    values_CLQ = within_blocks(missing.outcomes["accuracy"], missing, design.trend_NK)
    p_value = permutation_p(quadratic_form(design.permuted(values_CLQ, rng, draws), design.inverse_SS))
    phase_R, share = phase_rates(missing, "accuracy", coordinate, stride)
    by_phase = dict(zip(map(str, phase_R.tolist()), share.rate_R.tolist(), strict=True))
    return p_value, {"by_phase": by_phase, "bounds": _bounds(observations, dropped, stride, coordinate)}


def _bounds(
    observations: Observations, dropped: Sequence[Dropped], stride: int, coordinate: Coordinate
) -> dict[str, float]:
    """Mean accuracy with all missing answers wrong and with all right, and the least phase SD that there can be.

    Each phase's accuracy may lie anywhere between the two, that of a phase that was never asked anywhere at all; the
    least SD is that of the most even accuracies, less what independent trials show by chance.
    """
    answered_N = observations.integers(f"{coordinate}_position") % stride
    lost_N = np.array([getattr(one, f"{coordinate}_position") % stride for one in dropped])
    right_S = np.bincount(answered_N, observations.numbers("score"), stride)
    lost_S = np.bincount(lost_N, minlength=stride)
    asked_S = np.bincount(answered_N, minlength=stride) + lost_S
    low_S = np.divide(right_S, asked_S, out=np.zeros(stride), where=asked_S > 0)
    high_S = np.divide(right_S + lost_S, asked_S, out=np.ones(stride), where=asked_S > 0)
    level_X = np.linspace(0, 1, 1001)[:, None]  # the most even accuracies are those nearest to some level
    near_XS = np.clip(level_X, low_S, high_S)
    chance_X = (near_XS * (1 - near_XS) / np.maximum(asked_S, 1)).mean(axis=1)
    least = float(np.maximum(near_XS.var(axis=1) - chance_X, 0.0).min())
    planned = float(asked_S.sum())
    return {
        "wrong": float(right_S.sum()) / planned,
        "right": float((right_S + lost_S).sum()) / planned,
        "least_phase_sd": math.sqrt(least),
    }


def _marked(one: Observation, score: float) -> Observation:
    return Observation.model_construct(
        **{**one.__dict__, "score": score, "logprob": None, "candidate_score": None}
    )


def _stand_in(one: Dropped, score: float) -> Observation:
    """An observation in the place of a missing one."""
    return Observation.model_construct(
        condition=one.condition,
        trial=one.trial,
        cluster=one.cluster,
        block=one.block,
        layout=one.layout,
        source_position=one.source_position or 0,
        query_position=one.query_position or 0,
        prompt_tokens=(one.query_position or 0) + 1,
        score=score,
    )


def phases_missing(finding: Finding) -> list[int]:
    """The phases whose share of missing answers is above the overall one, the worst first; the unseen ones too."""
    shares: dict[str, float] = finding.detail.get("by_phase", {})
    heavy = defaultdict(float, {int(phase): share for phase, share in shares.items()})
    for phase in finding.detail["unseen"]:
        heavy[phase] = max(heavy[phase], 1.0)
    return sorted((p for p in heavy if heavy[p] > (finding.value or 0.0)), key=lambda p: (-heavy[p], p))
