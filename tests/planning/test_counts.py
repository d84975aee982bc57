"""Counting draws the run's own trials, so its numbers are exact."""

from __future__ import annotations

import numpy as np
import pytest

from phasescope.planning.counts import SAMPLES, count
from phasescope.protocols import InSequencePadding, PrefixPadding, QueryPadding
from phasescope.text.synthetic import RetrievalVocabulary

VOCABULARY = RetrievalVocabulary.contiguous(16, 64, 64)


@pytest.mark.parametrize("kind", [PrefixPadding, InSequencePadding, QueryPadding])
@pytest.mark.parametrize(
    "settings", [{"contexts": 7, "residues": 5}, {"contexts": 6, "residues": 6, "questions": 1}]
)
def test_every_number_is_that_of_the_trials(kind: type, settings: dict[str, int]) -> None:
    """Also where contexts are no multiple of the residues, and a protocol's own plan is a mean."""
    protocol = kind(pairs=9, **settings)
    batches = list(protocol.batches(VOCABULARY, np.random.default_rng(4)))
    counts = count(iter(batches))
    trials = [trial for batch in batches for trial in batch]
    assert counts.trials == len(trials) == sum(protocol.batch_sizes())
    assert (counts.batches, counts.layouts) == (settings["contexts"], settings["residues"])
    assert counts.prompt_tokens == counts.read(share=False) == sum(len(t.prompt_ids) for t in trials)
    once = {(t.cluster, t.layout): len(t.prompt_ids) - 1 for t in trials}
    if protocol.asked > 1:
        assert counts.shared_tokens == counts.read(share=True) == sum(once.values()) + len(trials)
    assert counts.longest == max(len(t.prompt_ids) for t in trials) + 1
    assert counts.new_tokens == len(trials)
    assert counts.first == tuple(batches[:SAMPLES])
    assert counts.table.source_CLQ.shape == (settings["contexts"], settings["residues"], protocol.asked)
