"""Planted data: outcomes from a known phase curve, as tables, many times faster than through prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from phasescope.records import Observation
from phasescope.statistics.table import Table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def flat(stride: int, accuracy: float = 0.7) -> Floats:
    """No effect."""
    return np.full(stride, accuracy)


def slope(stride: int, size: float, accuracy: float = 0.7) -> Floats:
    """From accuracy + size/2 at phase 0 down to accuracy − size/2."""
    return accuracy + size * np.linspace(0.5, -0.5, stride)


def sine(stride: int, size: float, accuracy: float = 0.7) -> Floats:
    """One wave of that height from trough to crest."""
    return accuracy + size / 2 * np.sin(2 * np.pi * (np.arange(stride) + 0.5) / stride)


def one_bad_phase(stride: int, size: float, accuracy: float = 0.7) -> Floats:
    """The last phase is worse than all others."""
    return np.where(np.arange(stride) == stride - 1, accuracy - size, accuracy)


@dataclass(frozen=True, kw_only=True)
class Design:
    """Who is asked what, with which noise; effects are on the logit scale, as in the planted backend.

    p = σ(logit(curve[phase]) + block + cluster + layout + trend · position + aperiodic + together)

    Args:
        clusters, layouts, questions: sizes; one question per cluster gives independent blocks.
        block_sd, cluster_sd, layout_sd: SD of a question's, a context's and a context's layout's effect.
        trend: logits per token of position.
        own_layouts: every question has its own order of positions over the layouts (in-sequence padding).
        aperiodic: what position does besides, without a period; see `APERIODIC`.
        size: of that, in logits.
        query_moves: the query moves with the source, as when the pads stand before both.
        together: logits by (source + query) mod the length of the curve, as a wave of that height.
    """

    clusters: int = 25
    layouts: int = 24
    questions: int = 8
    block_sd: float = 0.7
    cluster_sd: float = 0.4
    layout_sd: float = 0.5
    trend: float = 0.0
    own_layouts: bool = False
    aperiodic: str = "none"
    size: float = 0.0
    query_moves: bool = False
    together: float = 0.0

    @property
    def sd(self) -> float:
        """Of the sum of all effects, in logits."""
        return float(np.sqrt(self.block_sd**2 + self.cluster_sd**2 + self.layout_sd**2))


APERIODIC: dict[str, Callable[[Ints, Ints], Floats]] = {
    "none": lambda position, offset: np.zeros(position.shape),
    "step": lambda position, offset: -1.0 * (position > 20),
    "cliff": lambda position, offset: -1.0 * (offset > 11),
    "saturating": lambda position, offset: 2 * (1 - np.exp(-position / 6)),
    "bump": lambda position, offset: -1.0 * ((position >= 18) & (position < 23)),
}
"""What position does, per unit of size: along the source's position, or the number of pads of a block."""
CLUSTERED = Design()
INDEPENDENT = Design(clusters=100, questions=1, cluster_sd=0.0, layout_sd=0.0)


def truth(curve: Floats, design: Design) -> Floats:
    """Accuracy per phase, averaged exactly over block, cluster and layout effects (Gauss–Hermite), no trend."""
    node_N, weight_N = np.polynomial.hermite_e.hermegauss(64)
    return expit(logit(curve)[:, None] + design.sd * node_N) @ (weight_N / weight_N.sum())


def truth_logprob(curve: Floats, design: Design) -> Floats:
    """Mean log-probability per phase, of log σ(logit p − logit u) with u uniform."""
    node_N, weight_N = np.polynomial.hermite_e.hermegauss(64)
    odds_SN = np.exp(-logit(curve)[:, None] - design.sd * node_N)
    return (-odds_SN * np.log(odds_SN) / (odds_SN - 1)) @ (weight_N / weight_N.sum())


def plant(curve: Floats, design: Design, rng: np.random.Generator) -> Table:
    """One run: positions as a balanced protocol draws them, right or wrong by the curve."""
    c, layouts, q = design.clusters, design.layouts, design.questions
    start_C11 = rng.permutation((np.arange(c) * layouts // c + rng.integers(layouts)) % layouts)[
        :, None, None
    ]
    step_1L1 = np.arange(layouts)[None, :, None]
    if design.own_layouts:
        step_1L1 = rng.permuted(np.broadcast_to(step_1L1, (c, layouts, q)), axis=1)
    source_CLQ = start_C11 + step_1L1 + 2 * np.arange(q)
    effects_CLQ = (
        rng.normal(0, design.cluster_sd, (c, 1, 1))
        + rng.normal(0, design.block_sd, (c, 1, q))
        + rng.normal(0, design.layout_sd, (c, layouts, 1))
    )
    trend_CLQ = design.trend * (source_CLQ - source_CLQ.mean())
    query_CLQ = np.full_like(source_CLQ, source_CLQ.max() + 10)
    if design.query_moves:
        query_CLQ = np.broadcast_to(start_C11 + step_1L1 + layouts + 2 * q + 10, source_CLQ.shape).copy()
    offset_CLQ = source_CLQ - source_CLQ.min(axis=1, keepdims=True)
    margin_CLQ = logit(curve)[source_CLQ % len(curve)] + effects_CLQ + trend_CLQ
    margin_CLQ += design.size * APERIODIC[design.aperiodic](source_CLQ, offset_CLQ)
    phase_CLQ = (source_CLQ + query_CLQ) % len(curve)
    margin_CLQ += design.together / 2 * np.sin(2 * np.pi * (phase_CLQ + 0.5) / len(curve))
    margin_CLQ = margin_CLQ - logit(rng.random((c, layouts, q)))
    return Table(
        condition="planted",
        source_CLQ=source_CLQ,
        query_CLQ=query_CLQ,
        asked_CQ=np.ones((c, q), dtype=bool),
        outcomes={"accuracy": (margin_CLQ > 0).astype(np.float64), "logprob": -np.logaddexp(0, -margin_CLQ)},
    )


def observe(table: Table, condition: str = "planted") -> list[Observation]:
    """The same run as observations, in the order of a run: layout by layout within each cluster."""
    return [
        Observation(
            condition=condition,
            trial=f"{c}-{layout}-{q}",
            cluster=f"c{c:04d}",
            block=f"c{c:04d}/k{q:03d}",
            layout=layout,
            source_position=int(table.source_CLQ[c, layout, q]),
            query_position=int(table.query_CLQ[c, layout, q]),
            prompt_tokens=int(table.query_CLQ[c, layout, q]) + 1,
            answer=0,
            score=float(table.outcomes["accuracy"][c, layout, q]),
            candidate_score=float(table.outcomes["accuracy"][c, layout, q]),
            logprob=float(table.outcomes["logprob"][c, layout, q]),
        )
        for c, layout, q in np.ndindex(table.source_CLQ.shape)
        if table.asked_CQ[c, q]
    ]
