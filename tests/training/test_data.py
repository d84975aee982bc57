"""Training sequences ask for what the context says, and nothing else carries loss."""

import numpy as np
import pytest

from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training.data import IGNORED, RetrievalTask

TASK = RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(10, 40, 40), fillers=30)


@pytest.mark.parametrize("pairs", [1, 7, 40])
def test_each_record_is_asked_once_and_only_values_carry_loss(pairs):
    """Reading the context by hand gives every label."""
    for seed in range(20):
        ids, labels = TASK.batch(5, pairs, np.random.default_rng(seed))
        for row, label in zip(ids, labels, strict=True):
            context, asked = row[: -2 * pairs], row[-2 * pairs :].reshape(pairs, 2)
            where = np.flatnonzero((context >= 10) & (context < 50))
            held = dict(zip(context[where], context[where + 1], strict=True))
            assert dict(map(tuple, asked)) == held
            assert len(held) == pairs
            assert label[label != IGNORED].tolist() == asked[:, 1].tolist()
            assert (label[1::1] != IGNORED).nonzero()[0].tolist() == [
                len(row) - 2 * pairs + 2 * i for i in range(pairs)
            ]


def test_keys_stand_on_every_residue_and_records_are_sometimes_parted():
    """Offsets and gaps leave no phase of 24 unvisited by keys, and both kinds of batches occur."""
    residues, gaps = set(), set()
    for seed in range(40):
        ids, _ = TASK.batch(8, 12, np.random.default_rng(seed))
        context = ids[:, :-24]
        for row in context:
            keys = np.flatnonzero((row >= 10) & (row < 50))
            residues |= set(keys % 24)
            gaps |= set(np.diff(keys) - 2)
    assert residues == set(range(24))
    assert gaps == {0, 1, 2}


def test_the_same_generator_gives_the_same_batch():
    """A batch depends on its generator alone."""
    one, two = (TASK.batch(4, 8, np.random.default_rng(3))[0] for _ in range(2))
    assert np.array_equal(one, two)


def test_drawn_roles_make_any_token_a_key_a_value_and_a_filler():
    """Over sequences every id is asked for and is a value; fixed roles keep them apart."""
    for roles, whole in (("drawn", True), ("fixed", False)):
        keys, values = set(), set()
        for seed in range(60):
            ids, _ = TASK.model_copy(update={"roles": roles}).batch(4, 8, np.random.default_rng(seed))
            asked = ids[:, -16:].reshape(-1, 2)
            keys |= set(asked[:, 0].tolist())
            values |= set(asked[:, 1].tolist())
        every = set(TASK.vocabulary.every)
        assert (keys == values == every) is whole
        assert not keys & values or whole
