"""What arrives is what was sent, in few bytes."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from phasescope import Trial
from phasescope.protocols import InSequencePadding, PrefixPadding
from phasescope.running.wire import pack, unpack
from phasescope.text.synthetic import RetrievalVocabulary

VOCABULARY = RetrievalVocabulary.contiguous(16, 300, 300)


def batch(kind: type = PrefixPadding, pairs: int = 9) -> list[Trial]:
    """One context."""
    return list(next(kind(pairs=pairs, contexts=1).batches(VOCABULARY, np.random.default_rng(0))))


@pytest.mark.parametrize("kind", [PrefixPadding, InSequencePadding])
def test_a_batch_arrives_as_it_was_sent(kind: type) -> None:
    """Every field of every trial, whatever the order, and optional fields too."""
    sent = batch(kind)
    sent[3] = dataclasses.replace(sent[3], generate=7, content=(2, 5))
    sent = [sent[place] for place in np.random.default_rng(1).permutation(len(sent))]
    assert unpack(pickle.loads(pickle.dumps(pack(sent)))) == sent


def test_prompts_that_are_arrays_stay_arrays() -> None:
    """And have the digests they had."""
    sent = [dataclasses.replace(t, prompt_ids=np.array(t.prompt_ids)) for t in batch()[:30]]  # type: ignore[arg-type]
    got = unpack(pack(sent))
    assert all(isinstance(trial.prompt_ids, np.ndarray) for trial in got)
    assert [trial.digest for trial in got] == [trial.digest for trial in sent]


def test_large_ids_and_unequal_lengths_survive() -> None:
    """Ids beyond 31 bits, prompts that begin another, and an empty batch."""
    sent = [Trial(ids, (1,), (), 0, "b", "c", 0) for ids in [(1, 2, 3), (1, 2), (2**40, 2), (2**40,)]]
    assert unpack(pack(sent)) == sent
    assert unpack(pack([])) == []


def test_a_shared_prefix_travels_once() -> None:
    """A hundredth of what the trials themselves take."""
    sent = batch(pairs=300)
    assert 100 * len(pickle.dumps(pack(sent))) < len(pickle.dumps(sent)) * 5
