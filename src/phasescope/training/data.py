"""Training sequences: a block of records somewhere in filler, then every record again in random order."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from ..settings import Settings, setting
from ..text.synthetic import RetrievalVocabulary, draw_fillers, draw_pairs

MOST_FILLERS = 2**20
IGNORED = -100  # label of a token that carries no loss, as `transformers` defines it
Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


class RetrievalTask(Settings):
    """Sequences that teach recall of a block of records.

        [filler] records [filler] key value key value …

    The block of records starts at a uniform offset, and in half of the batches its records are parted by 0 to 2
    fillers, so that keys stand on every residue; packed records stand side by side in all of them. The second part
    asks for each record once, in random order; its values alone carry loss.

    Attributes:
        vocabulary: the ids that may appear.
        fillers: each batch draws a number from 0 to this, or to four times the number of records where that is less
            (a short context is mostly records).
        fixed_fillers: each batch has exactly `fillers`.
        packed: records stand side by side, with fillers around them alone; gates then specialise in slots, as a
            window holds several records whose keys all lie in slots of one parity.
        shared_ids: keys and values are drawn from one set of ids, all of the vocabulary's keys and values, so that no
            gate knows a value by its id; fillers stay apart.
        roles: `fixed` keeps fillers, keys and values apart as the vocabulary does; `drawn` deals all its ids out anew
            for every sequence. As in text, only the place of a token is then left to prefer one by.
    """

    vocabulary: RetrievalVocabulary = RetrievalVocabulary.contiguous(fillers=32, keys=112, values=112)
    fillers: int = setting(
        72, "The most filler tokens around and between the records.", panel="Records", ge=0, le=MOST_FILLERS
    )
    packed: bool = setting(
        False, "Records stand side by side, with no fillers between them.", panel="Records"
    )
    fixed_fillers: bool = setting(
        False, "Every context has exactly --fillers fillers, not any number up to them.", panel="Records"
    )
    shared_ids: bool = setting(
        False, "Any key may be a value and any value a key; place and context tell.", panel="Records"
    )
    roles: Literal["fixed", "drawn"] = setting(
        "fixed", "drawn: any token may be a key, a value or a filler, anew per sequence.", panel="Records"
    )

    @property
    def asked(self) -> RetrievalVocabulary:
        """What records are drawn from, here and where the trained model is asked."""
        return self.vocabulary.shared() if self.shared_ids else self.vocabulary

    def batch(self, rows: int, pairs: int, rng: np.random.Generator) -> Batch:
        """Draw equal-length sequences.

        Returns:
            ids and labels of shape [rows, tokens]; a label is the token itself where it is to be
            recalled and `IGNORED` elsewhere.
        """
        widest = (
            0 if self.packed else int(rng.integers(0, 2)) * 2
        )  # the largest gap between two records in this batch
        least, most = self.around(pairs)
        around = least if self.fixed_fillers else int(rng.integers(least, most + 1))
        length = 2 * pairs + widest * (pairs - 1) + around
        asked, fixed = self.asked, self.roles == "fixed"
        ids = np.stack(
            [_row(asked if fixed else _dealt(asked, rng), length, pairs, widest, rng) for _ in range(rows)]
        )
        labels = np.full_like(ids, IGNORED)
        labels[:, length + 1 :: 2] = ids[:, length + 1 :: 2]
        return ids, labels

    def around(self, pairs: int) -> tuple[int, int]:
        """The fewest and the most fillers beside the gaps."""
        return (self.fillers, self.fillers) if self.fixed_fillers else (0, min(self.fillers, 4 * pairs))

    def most_tokens(self, pairs: int) -> int:
        """Tokens of the longest sequence that `batch` draws."""
        gaps = 0 if self.packed else 2 * (pairs - 1)
        return 4 * pairs + gaps + self.around(pairs)[1]


def _row(
    vocabulary: RetrievalVocabulary, length: int, pairs: int, widest: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """One sequence, whose context has `length` tokens."""
    records = draw_pairs(vocabulary, pairs, rng)
    gaps = rng.integers(0, widest + 1, size=pairs - 1)
    starts = np.concatenate([[0], np.cumsum(gaps + 2)])
    start = int(rng.integers(0, length - starts[-1] - 1))  # the record that starts last needs two places
    context = draw_fillers(vocabulary, length, rng)
    context[start + starts] = records[:, 0]
    context[start + starts + 1] = records[:, 1]
    return np.concatenate([context, rng.permutation(records).reshape(-1)])


def _dealt(vocabulary: RetrievalVocabulary, rng: np.random.Generator) -> RetrievalVocabulary:
    """The same ids in three sets of the same sizes, drawn anew."""
    fillers, keys = len(vocabulary.fillers), len(vocabulary.keys)
    ids = tuple(rng.permutation(vocabulary.every).tolist())
    names = ids[fillers : fillers + keys]
    return RetrievalVocabulary.model_construct(
        fillers=ids[:fillers], keys=names, values=names if vocabulary.shares else ids[fillers + keys :]
    )
