"""Observations of one condition as arrays over cluster, layout and question."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
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
    conditions = sorted({observation.condition for observation in observations})
    if len(conditions) != 1:
        raise UsageError(
            f"observations of {len(conditions)} conditions {conditions}; analyse one condition at a time"
        )
    blocks: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    for observation in observations:
        blocks[observation.cluster, observation.block].append(observation)
    layouts = _usual_layouts(blocks.values())
    kept: list[list[Observation]] = []
    questions: Counter[str] = Counter()
    for (cluster, _), block in sorted(blocks.items()):
        by_layout = {observation.layout: observation for observation in block}
        if len(by_layout) == len(block) and by_layout.keys() >= set(layouts):
            kept.append([by_layout[layout] for layout in layouts])
            questions[cluster] += 1
    if len(layouts) < 2 or not kept:
        raise UsageError(
            f"condition {conditions[0]} has no block asked once in two or more layouts; measure it in full"
        )
    asked_CQ = np.arange(max(questions.values())) < np.array([*questions.values()])[:, None]

    def array(name: str, dtype: type) -> npt.NDArray[Any]:
        values_CQL = np.zeros((*asked_CQ.shape, len(layouts)), dtype=dtype)
        values_CQL[asked_CQ] = [[getattr(o, name) for o in block] for block in kept]
        return np.ascontiguousarray(values_CQL.transpose(0, 2, 1))

    recorded = {
        outcome: name
        for outcome, name in FIELDS.items()
        if all(getattr(o, name) is not None for block in kept for o in block)
    }
    return Table(
        condition=conditions[0],
        source_CLQ=array("source_position", np.int64),
        query_CLQ=array("query_position", np.int64),
        asked_CQ=asked_CQ,
        outcomes={outcome: array(name, np.float64) for outcome, name in recorded.items()},
        dropped_blocks=len(blocks) - len(kept),
    )


def _usual_layouts(blocks: Iterable[list[Observation]]) -> tuple[int, ...]:
    """The set of layouts that most blocks have; of equally frequent sets the largest, then the first."""
    counts = Counter(tuple(sorted({observation.layout for observation in block})) for block in blocks)
    return max(counts, key=lambda layouts: (counts[layouts], len(layouts), [-layout for layout in layouts]))
