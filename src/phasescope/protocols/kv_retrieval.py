"""Key-value retrieval: a block of records, then one of their keys; the next token should be its value.

A prompt is [fillers] records [fillers] key, a record the adjacent tokens key, value. A context is asked
in `residues` layouts, in which padding moves each source, or the query, through every residue once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..records import Trial
from ..text.synthetic import RetrievalVocabulary, draw_fillers, draw_pairs
from .base import Batch, Plan, Protocol

Ints = npt.NDArray[np.int64]


MOST_PLACES = 2**22
"""Of all records of a context in all its layouts."""


@dataclass(frozen=True, kw_only=True)
class KVRetrieval(Protocol):
    """Settings and prompts that the paddings share; a padding says only where the fillers go.

    All layouts of a context read the same records and the same fillers in the same order. What differs
    is how many fillers stand before each record.

    Args:
        pairs: records in a context.
        contexts: contexts, each a cluster of its own.
        residues: layouts of a context; 24 serves the strides 2, 3, 4, 6, 8, 12 and 24.
        questions: records of a context that are asked, a contiguous run whose start varies over contexts.
            By default whole rounds of the residues that such a run steps through (12 records in prefix
            padding: 2 tokens apart, mod 24), because only these give every residue the same variance of
            position; all records where they are fewer than one round, or so many (four rounds) that the
            remainder no longer matters.
        margin: fewest fillers between the last record and the query. With a window's width or more no
            source can lie in the unfinished last window, where it would be read raw.

    Raises:
        UsageError: for numbers outside their range.
    """

    spacing: ClassVar[int]
    """Tokens from one record to the next, on average over layouts."""
    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {
        "pairs": (1, 2**16),
        "contexts": (1, 10**6),
        "residues": (2, 2**16),
        "questions": (1, 2**16),
        "margin": (0, 2**20),
    }

    pairs: int = 64
    contexts: int = 25
    residues: int = 24
    questions: int | None = None
    margin: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.residues * self.pairs > MOST_PLACES:
            raise UsageError(
                f"{self.pairs:,} pairs at {self.residues:,} residues are {self.residues * self.pairs:,} places in a "
                f"context; give at most {MOST_PLACES:,}"
            )
        if self.questions is not None and self.questions > self.pairs:
            raise UsageError(f"{self.questions} questions about {self.pairs} pairs; ask at most {self.pairs}")

    @property
    def asked(self) -> int:
        """How many records of a context are asked."""
        if self.questions is not None:
            return self.questions
        rounds = self.residues // math.gcd(self.residues, self.spacing)
        return self.pairs // rounds * rounds if rounds <= self.pairs < 4 * rounds else self.pairs

    def batch_sizes(self) -> list[int]:
        """One batch per context: layouts × questions."""
        return [self.residues * self.asked] * self.contexts

    def plan(self) -> Plan:
        """Tokens are exact where `contexts` is a multiple of `residues`, else very nearly so."""
        rng = np.random.default_rng(0)  # the draws move fillers, not the number of tokens
        contexts = [
            self._fillers_before(0, end, rng)[:, -1] + 2 * self.pairs for end in (0, self.residues - 1)
        ]
        shared = self.contexts * int(np.sum(contexts)) / 2
        trials = sum(self.batch_sizes())
        return Plan(trials, round(shared * self.asked) + trials, round(shared) + trials)

    def batches(self, vocabulary: RetrievalVocabulary | None, rng: np.random.Generator) -> Iterator[Batch]:
        """The first source's residue and the query's are stratified over contexts, independently."""
        if vocabulary is None:
            raise UsageError(f"{self.name} builds prompts from a vocabulary; give one")
        firsts = _stratified(self.contexts, self.pairs - self.asked + 1, rng)
        bases = (_stratified(self.contexts, self.residues, rng) - self.spacing * firsts) % self.residues
        ends = _stratified(self.contexts, self.residues, rng)
        for context, (base, end, first) in enumerate(zip(bases, ends, firsts, strict=True)):
            own = self._stream(rng)
            records_P2 = draw_pairs(vocabulary, self.pairs, own)
            before_LP = self._fillers_before(int(base), int(end), own)
            fillers = draw_fillers(vocabulary, int(before_LP[:, -1].max()), own)
            asked = range(int(first), int(first) + self.asked)
            yield tuple(_trials(f"c{context:04d}", records_P2, fillers, before_LP, asked))

    def _stream(self, rng: np.random.Generator) -> np.random.Generator:
        """The generator of one context's draws."""
        return rng

    @abstractmethod
    def _fillers_before(self, base: int, end: int, rng: np.random.Generator) -> Ints:
        """Fillers before each record and, in the last column, before the query: [layouts, pairs + 1].

        Args:
            base: 0 to residues − 1, this context's offset of the record block.
            end: 0 to residues − 1, this context's offset of the query.
            rng: for paddings that draw.
        """


class PrefixPadding(KVRetrieval):
    """Key-value retrieval in which padding in front moves all records together, distractors too.

        fillers before every record = base + layout         layout = 0 … residues − 1

    Total length and query position are fixed within a context; the query's residue varies over contexts.

    Source: arXiv 2609.36322, prefix padding.
    Differs: `base` varies over contexts, so that the residues agree in the mean and SD of the source's
        position.
    """

    name: ClassVar[str] = "prefix"
    spacing: ClassVar[int] = 2
    moves: ClassVar[Literal["source", "query"]] = "source"

    def _fillers_before(self, base: int, end: int, rng: np.random.Generator) -> Ints:
        lead_L1 = base + np.arange(self.residues)[:, None]
        query_L1 = np.full_like(lead_L1, 2 * (self.residues - 1) + self.margin + end)
        return np.hstack([np.repeat(lead_L1, self.pairs, axis=1), query_L1])


class InSequencePadding(KVRetrieval):
    """Key-value retrieval in which gaps between the records move each source past its distractors.

        fillers before record i = base + i + rank_i(layout)      rank_i a permutation of 0 … residues − 1

    From one record to the next, randomly chosen neighbours in rank swap, so the gaps are 0, 1 or 2 and
    every source visits all residues once, while the layouts take different paths. Total length and query
    position are fixed within a context.

    Source: arXiv 2609.36322, in-sequence padding.
    Differs: the paper's draw of the gaps is not known; this one lets all questions of a layout share one
        prefill.
    """

    name: ClassVar[str] = "in_sequence"
    spacing: ClassVar[int] = 3
    moves: ClassVar[Literal["source", "query"]] = "source"

    def _fillers_before(self, base: int, end: int, rng: np.random.Generator) -> Ints:
        rank_LP = _swapping_ranks(self.residues, self.pairs, rng)
        before_LP = base + np.arange(self.pairs) + rank_LP
        last = 2 * (self.residues - 1) + self.pairs - 1 + self.margin + end
        return np.hstack([before_LP, np.full((self.residues, 1), last)])


class QueryPadding(KVRetrieval):
    """Key-value retrieval in which the sources stay and the query alone moves, as the control of the end.

        fillers before every record = base
        fillers before the query    = residues − 1 + margin + end + layout

    The query visits every residue once per context, and the prompt's length moves with it, by design. The
    query's residues agree in mean position when `contexts` is a multiple of `residues` (within a token at
    25), but not in its SD: all questions of a layout share one query position.
    """

    name: ClassVar[str] = "query"
    spacing: ClassVar[int] = 2
    moves: ClassVar[Literal["source", "query"]] = "query"

    def _fillers_before(self, base: int, end: int, rng: np.random.Generator) -> Ints:
        query_L1 = self.residues - 1 + self.margin + end + np.arange(self.residues)[:, None]
        return np.hstack([np.full((self.residues, self.pairs), base), query_L1])


def _stratified(count: int, levels: int, rng: np.random.Generator) -> Ints:
    """`count` numbers from 0 … levels − 1 in random order, spread as evenly as they can be."""
    spread = np.arange(count) * levels // count
    return rng.permutation((spread + rng.integers(levels)) % levels)


def _swapping_ranks(layouts: int, records: int, rng: np.random.Generator) -> Ints:
    """For each record a permutation of the layouts, in which neighbours swap from record to record.

    At each step the ranks are paired up from 0 or from 1, as a coin says, and each pair swaps with
    probability 2/3, so that the steps −1, 0 and 1 are equally likely away from the two ends.

    Returns:
        ranks of shape [layouts, records].
    """
    layout_of_rank = np.arange(layouts)
    rank_LP = np.empty((layouts, records), dtype=np.int64)
    for record in range(records):
        if record:
            lower = np.arange(int(rng.integers(2)), layouts - 1, 2)
            lower = lower[rng.random(len(lower)) < 2 / 3]
            pair = np.stack([lower, lower + 1])
            layout_of_rank[pair] = layout_of_rank[pair[::-1]]
        rank_LP[layout_of_rank, record] = np.arange(layouts)
    return rank_LP


def _trials(cluster: str, records_P2: Ints, fillers: Ints, before_LP: Ints, asked: range) -> Iterator[Trial]:
    """All questions of all layouts of one context."""
    candidates = tuple(records_P2[:, 1].tolist())
    questions = [((key,), (value,)) for key, value in records_P2[asked.start : asked.stop].tolist()]
    blocks = [f"{cluster}/k{index:03d}" for index in asked]
    starts_LP = before_LP[:, :-1] + 2 * np.arange(len(records_P2))
    for layout, (before_P, starts_P) in enumerate(zip(before_LP, starts_LP, strict=True)):
        context = tuple(_interleave(records_P2, fillers[: before_P[-1]], starts_P).tolist())
        sources = starts_P[asked.start : asked.stop].tolist()
        for (key, value), block, source in zip(questions, blocks, sources, strict=True):
            yield Trial(context + key, value, candidates, source, block, cluster, layout)


def _interleave(records_P2: Ints, fillers: Ints, starts_P: Ints) -> Ints:
    """Put each record at its start and the fillers, in order, everywhere else."""
    ids = np.empty(records_P2.size + len(fillers), dtype=np.int64)
    is_filler = np.ones(len(ids), dtype=bool)
    is_filler[starts_P] = is_filler[starts_P + 1] = False
    ids[starts_P], ids[starts_P + 1] = records_P2.T
    ids[is_filler] = fillers
    return ids
