"""Observations of one condition as arrays over cluster, layout and question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..observations import MISSING, Observations
from ..records import Observation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Coordinate = Literal["source", "query"]
Outcome = Literal["accuracy", "candidate_accuracy", "logprob", "margin"]

FIELDS: dict[Outcome, str] = {
    "accuracy": "score",
    "candidate_accuracy": "candidate_score",
    "logprob": "logprob",
    "margin": "margin",
}


@dataclass(frozen=True)
class Table:
    """The complete blocks of one condition; clusters with fewer questions than others are filled up.

    Suffixes: C cluster, L layout, Q question of a cluster (a block).

    Attributes:
        condition: name of the condition.
        source_CLQ: position of the source, in tokens.
        query_CLQ: position of the query, in tokens.
        asked_CQ: false where a question only fills up; its positions and outcomes are 0.
        outcomes: what was recorded for every trial, by outcome.
        dropped_blocks: blocks left out because a layout is missing or was answered twice.
    """

    condition: str
    source_CLQ: Ints
    query_CLQ: Ints
    asked_CQ: npt.NDArray[np.bool_]
    outcomes: dict[Outcome, Floats] = field(default_factory=dict)
    dropped_blocks: int = 0

    @property
    def n_clusters(self) -> int:
        """Contexts with at least one complete block."""
        return len(self.asked_CQ)

    @property
    def n_blocks(self) -> int:
        """Complete blocks."""
        return int(self.asked_CQ.sum())

    @property
    def n_layouts(self) -> int:
        """Layouts that every complete block was asked in."""
        return int(self.source_CLQ.shape[1])

    @property
    def asked(self) -> npt.NDArray[np.bool_]:
        """`asked_CQ` for each layout."""
        return np.broadcast_to(self.asked_CQ[:, None, :], self.source_CLQ.shape)

    def position(self, coordinate: Coordinate) -> Ints:
        """The position that is folded."""
        return self.source_CLQ if coordinate == "source" else self.query_CLQ


def tabulate(observations: Sequence[Observation]) -> Table:
    """Sort the observations of one condition into a table of complete blocks.

    Complete is a block that was asked exactly once in each of the usual layouts, those that most blocks
    have. Others are dropped and counted, because phases are compared within blocks.

    Raises:
        UsageError: without observations, with several conditions, or without two layouts to compare.
    """
    columns = Observations.of(observations)
    code_N, names = columns.texts("condition")
    conditions = sorted({names[code] for code in np.unique(code_N)})
    if len(conditions) != 1:
        raise UsageError(
            f"observations of {len(conditions)} conditions {conditions}; analyse one condition at a time"
        )
    rows_B = _blocks(columns)
    layout_N = columns.integers("layout")
    seen_B = [tuple(layout_N[rows].tolist()) for rows in rows_B]
    layouts = _usual_layouts(seen_B)
    whole = [
        rows if seen == layouts else rows[np.isin(seen, layouts)]
        for rows, seen in zip(rows_B, seen_B, strict=True)
        if seen == layouts or (len(set(seen)) == len(seen) and set(seen) >= set(layouts))
    ]
    if len(layouts) < 2 or not whole:
        raise UsageError(
            f"condition {conditions[0]} has no block asked once in two or more layouts; measure it in full"
        )
    row_BL = np.array(whole)
    cluster_B = columns.texts("cluster")[0][row_BL[:, 0]]
    first_B = np.flatnonzero(np.diff(cluster_B, prepend=MISSING))
    questions_C = np.diff(first_B, append=len(row_BL))
    asked_CQ = np.arange(questions_C.max()) < questions_C[:, None]

    def filled(values_N: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values_CQL = np.zeros((*asked_CQ.shape, len(layouts)), dtype=values_N.dtype)
        values_CQL[asked_CQ] = values_N[row_BL]
        return np.ascontiguousarray(values_CQL.transpose(0, 2, 1))

    recorded = {outcome: columns.numbers(name) for outcome, name in FIELDS.items()}
    return Table(
        condition=conditions[0],
        source_CLQ=filled(columns.integers("source_position")),
        query_CLQ=filled(columns.integers("query_position")),
        asked_CQ=asked_CQ,
        outcomes={name: filled(one) for name, one in recorded.items() if not np.isnan(one[row_BL]).any()},
        dropped_blocks=len(rows_B) - len(whole),
    )


def _blocks(columns: Observations) -> list[Ints]:
    """The rows of each block in the order of their layouts; blocks by the names of cluster and block."""
    cluster_N, block_N = (_ranks(*columns.texts(name)) for name in ("cluster", "block"))
    order_N = np.lexsort((columns.integers("layout"), block_N, cluster_N))
    ends = np.diff(cluster_N[order_N]).astype(bool) | np.diff(block_N[order_N]).astype(bool)
    return np.split(order_N, np.flatnonzero(ends) + 1)


def _ranks(code_N: npt.NDArray[np.int32], values: Sequence[str]) -> Ints:
    """The place of each text among the sorted ones."""
    rank_V = np.empty(len(values), dtype=np.int64)
    rank_V[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
    ranks: Ints = rank_V[code_N]
    return ranks


def _usual_layouts(seen_B: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The set of layouts that most blocks have; of equally frequent sets the largest, then the first."""
    counts = Counter(tuple(dict.fromkeys(seen)) for seen in seen_B)
    return max(counts, key=lambda layouts: (counts[layouts], len(layouts), [-layout for layout in layouts]))
