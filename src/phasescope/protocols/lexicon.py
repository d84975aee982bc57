"""The words of a needle test: keys and values of equally many one-token words, no value another's prefix."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..text.tokens import Tokenizer

Ints = npt.NDArray[np.int64]
Words = list[tuple[int, str]]

FILLERS = 128
"""Commonest words, which pad a context and mean nothing."""
SMALLEST = 256
"""Words for keys, and for values, even for a handful of pairs, so that contexts differ."""
ENOUGH = 64
"""Words that a model says in one token: if there are so many, only they are asked for."""
MOST = 4
"""Words in the longest key or value; with four of them the smallest tokenizer has enough."""


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Where the keys, values and fillers of a test come from; the three share no token.

    Attributes:
        keys: ids from which keys are made.
        values: ids from which values are made; no word of theirs begins another.
        askable: those values that may begin an asked value, because a model says all of them in equally
            many tokens.
        fillers: ids of common words.
        key_words, value_words: one-token words in each key, and in each value.
        text: the word that each of the ids stands for.
    """

    keys: Ints
    values: Ints
    askable: Ints
    fillers: Ints
    key_words: int
    value_words: int
    text: dict[int, str]

    @classmethod
    def choose(
        cls,
        tokenizer: Tokenizer,
        pairs: int,
        *,
        taken: Collection[int] = (),
        key_words: int | None = None,
        value_words: int | None = None,
        bare: bool = False,
    ) -> Lexicon:
        """The commonest words that suffice for so many pairs, and as few per key and value as can be.

        Small letters come first. Where they are too few for keys and values of one token, capitals (`Apple`)
        join them; where these are too few as well, a key, and last a value, is of two words or more.

        Args:
            tokenizer: of the model.
            pairs: different keys, and different values, in one context.
            taken: ids that may not be used, because the prompt has them elsewhere.
            key_words: words in each key; by default the fewest that suffice.
            value_words: words in each value, likewise.
            bare: whether answers begin without the blank that the words have in the context.

        Raises:
            UsageError: if the tokenizer has too few words.
        """

        def free(*, capital: bool) -> Words:
            words = tokenizer.words(capital=capital)
            return [(token, word) for token, word in words if len(word) > 2 and token not in taken]

        small = free(capital=False)
        # Words that begin no other come first: a piece of a word (`challeng`) is no word to ask for.
        fillers = _longest(small)[:FILLERS]
        padding = {token for token, _ in fillers}
        words = [entry for entry in small if entry[0] not in padding]
        for keys_of, values_of in _sizes(key_words, value_words):
            need = _pool_size(pairs, keys_of), _pool_size(pairs, values_of)
            found = _pools(words, *need) or _pools([*words, *free(capital=True)], *need)
            if found is not None and fillers:
                keys, values = found
                return cls(
                    keys=_ids(keys),
                    values=_ids(values),
                    askable=_ids(_askable(tokenizer, values) if bare else values),
                    fillers=_ids(fillers),
                    key_words=keys_of,
                    value_words=values_of,
                    text=dict([*fillers, *keys, *values]),
                )
        raise UsageError(
            f"the tokenizer of {tokenizer.name} has {len(small)} whole words, too few for {pairs} pairs; "
            "ask for fewer pairs, or for more words per key and value"
        )

    def draw_keys(self, pairs: int, rng: np.random.Generator) -> Ints:
        """Different keys; of neighbours the first words differ too. Shape [pairs, key words]."""
        return _compose(rng.permutation(self.keys), self.key_words, pairs)

    def draw_values(self, pairs: int, asked: range, rng: np.random.Generator) -> Ints:
        """Different values, of which those in `asked` begin with an askable word. Shape [pairs, value words]."""
        order = rng.permutation(self.values)
        first = rng.permutation(self.askable)[: len(asked)]
        order = np.concatenate([first, order[~np.isin(order, first)]])
        size = len(order) // self.value_words
        order[:size] = np.roll(order[:size], asked.start)
        return _compose(order, self.value_words, pairs)

    @property
    def most_questions(self) -> int:
        """How many records of a context can be asked."""
        return min(len(self.keys) // self.key_words, len(self.values) // self.value_words, len(self.askable))


def prefix_free(words: Sequence[str]) -> bool:
    """Whether no text begins another, or equals it."""
    ordered = sorted(words)
    return not any(after.startswith(before) for before, after in pairwise(ordered))


def _sizes(key_words: int | None, value_words: int | None) -> Iterator[tuple[int, int]]:
    """Words per key and value, from few to many; keys grow first, so that answers stay single tokens."""
    for values in range(1, MOST + 1) if value_words is None else [value_words]:
        for keys in range(1, MOST + 1) if key_words is None else [key_words]:
            if key_words is not None or value_words is not None or keys in (values, values + 1):
                yield keys, values


def _pool_size(count: int, words: int) -> int:
    """The fewest ids from which so many different texts of so many words can be made."""
    size = max(1, int(count ** (1 / words)) - 1)
    while size**words < count:
        size += 1
    return size * words


def _pools(words: Words, keys: int, values: int) -> tuple[Words, Words] | None:
    """At least so many words for keys and for values; None where they are too few."""
    free = _longest(words)
    each = max(keys, values, SMALLEST)
    if len(free) >= 2 * each:
        return free[1 : 2 * each : 2], free[: 2 * each : 2]
    most = min(len(free), len(words) - keys)
    if most < values:
        return None
    chosen = free[: max(values, min(most, len(words) // 2))]
    taken = {token for token, _ in chosen}
    return [entry for entry in words if entry[0] not in taken], chosen


def _longest(words: Words) -> Words:
    """The words that begin no other, in the order they came in."""
    ordered = sorted(word for _, word in words)
    begins = {before for before, after in pairwise(ordered) if after.startswith(before)}
    return [entry for entry in words if entry[1] not in begins]


def _askable(tokenizer: Tokenizer, values: Words) -> Words:
    """The values that are of equally many tokens without their blank: one, if there are enough of them."""
    lengths = np.array([len(ids) for ids in tokenizer.encode_many([word for _, word in values])])
    single = int((lengths == 1).sum())
    length = 1 if single >= ENOUGH else np.bincount(lengths).argmax()
    return [entry for entry, own in zip(values, lengths, strict=True) if own == length]


def _compose(order: Ints, words: int, count: int) -> Ints:
    """Different sequences of words from a shuffled pool, whose parts are the 1st, 2nd, … words.

    Row r takes from part j the word r + ⌊r/n⌋ + … + ⌊r/nʲ⌋ mod n, n words being in a part: n^words rows differ,
    and n rows in succession differ in every word.
    """
    size = len(order) // words
    row_R = np.arange(count)
    step_RW = np.cumsum([row_R // size**part for part in range(words)], axis=0).T
    return order[step_RW % size + size * np.arange(words)]


def _ids(words: Words) -> Ints:
    return np.array([token for token, _ in words], dtype=np.int64)
