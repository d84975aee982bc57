"""MQAR, multi-query associative recall, written anew from its description in arXiv 2312.04927.

A sequence of token ids begins with key-value pairs, key and value a token each and nothing between the pairs, so that
every key stands at an even position; queries follow at even positions too, at gaps from a power law. It has no text and
needs no tokenizer.

    phasescope audit examples/audits/mqar.py:keys
    phasescope audit examples/audits/mqar.py:queries
"""

from collections.abc import Iterator

import numpy as np

PAIRS, LENGTH, EXAMPLES, POWER = 64, 512, 100, 0.01


def sequence(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids of one example, positions of its keys, and positions at which each is asked again."""
    keys = rng.permutation(4096)[:PAIRS]
    values = 4096 + rng.integers(4096, size=PAIRS)
    ids = np.zeros(LENGTH, dtype=np.int64)
    ids[0 : 2 * PAIRS : 2], ids[1 : 2 * PAIRS : 2] = keys, values
    slots = (LENGTH - 2 * PAIRS) // 2
    weight = POWER * np.arange(1, slots + 1) ** (POWER - 1)
    asked = 2 * PAIRS + 2 * rng.choice(slots, size=PAIRS, replace=False, p=weight / weight.sum())
    ids[asked] = keys
    return ids, np.arange(0, 2 * PAIRS, 2), asked


def keys(rng: np.random.Generator) -> Iterator[dict[str, object]]:
    """One sample per question, at the position of the key that is asked for, found in the sequence itself."""
    for _ in range(EXAMPLES):
        ids, _, asked = sequence(rng)
        for query in asked:
            yield {"position": int(np.flatnonzero(ids[: 2 * PAIRS] == ids[query])[0])}


def queries(rng: np.random.Generator) -> Iterator[dict[str, object]]:
    """The same by the position of the query."""
    for _ in range(EXAMPLES):
        for query in sequence(rng)[2]:
            yield {"position": int(query)}
