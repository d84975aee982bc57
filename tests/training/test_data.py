"""Training sequences ask for what the context says, and nothing else carries loss."""

import hashlib

import numpy as np
import pytest

from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import Training
from phasescope.training.data import IGNORED, RetrievalTask
from phasescope.training.work import mean_length

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


@pytest.mark.parametrize("roles", ["fixed", "drawn"])
def test_shared_ids_make_any_name_a_key_and_a_value_once_a_context(roles):
    """Of 8 records no two share a name; over sequences every name is both, and fixed fillers are neither."""
    keys, values, fillers = set(), set(), set(TASK.vocabulary.fillers)
    task = TASK.model_copy(update={"shared_ids": True, "packed": True, "roles": roles})
    for seed in range(60):
        ids, _ = task.batch(4, 8, np.random.default_rng(seed))
        for row in ids:
            asked = row[-16:].reshape(-1, 2)
            assert len(set(asked.flat)) == 16
            keys |= set(asked[:, 0].tolist())
            values |= set(asked[:, 1].tolist())
    assert keys == values == set(TASK.vocabulary.every) - (fillers if roles == "fixed" else set())


def test_packed_records_stand_side_by_side_with_fillers_around():
    """All keys of a row are two tokens apart; the block stands on every residue, and its batches are no longer."""
    task, residues = TASK.model_copy(update={"packed": True}), set()
    for seed in range(60):
        ids, _ = task.batch(4, 12, np.random.default_rng(seed))
        assert ids.shape[1] <= task.most_tokens(12) < TASK.most_tokens(12)
        for row in ids[:, :-24]:
            keys = np.flatnonzero((row >= 10) & (row < 50))
            assert set(np.diff(keys)) == {2}
            residues.add(keys[0] % 8)
    assert residues == set(range(8))


def test_fixed_fillers_are_as_many_in_every_batch():
    """Also where the context is short; the block of records still begins anywhere."""
    task = TASK.model_copy(update={"packed": True, "fixed_fillers": True})
    batches = [task.batch(8, 3, np.random.default_rng(seed))[0] for seed in range(40)]
    assert {ids.shape[1] for ids in batches} == {3 * 4 + 30} == {task.most_tokens(3)}
    firsts = {int(np.flatnonzero((row >= 10) & (row < 50))[0]) for ids in batches for row in ids}
    assert firsts == set(range(31))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("fixed", [True, False])
def test_the_mean_length_of_a_batch_is_what_a_plan_counts(packed, fixed):
    """Over 2,000 batches, within one and a half tokens."""
    settings = Training(task=TASK.model_copy(update={"packed": packed, "fixed_fillers": fixed}))
    lengths = [settings.task.batch(1, 9, np.random.default_rng(n))[0].shape[1] for n in range(2000)]
    assert np.mean(lengths) == pytest.approx(mean_length(settings, 9), abs=1.5)


def test_what_training_draws_by_default_is_what_version_0_1_drew():
    """The digest of a batch of each role, so that runs of version 0.1 can be repeated."""
    digests = []
    for roles in ("fixed", "drawn"):
        ids, _ = RetrievalTask(roles=roles).batch(8, 9, np.random.default_rng(4))
        digests.append(hashlib.sha256(ids.tobytes()).hexdigest()[:16])
    assert digests == ["8549b2850c1c5feb", "56c979a60516d204"]


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
