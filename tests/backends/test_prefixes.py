"""Trials that share a prefix, grouped without torch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from phasescope import Trial
from phasescope.backends.prefixes import contexts
from phasescope.protocols import PrefixPadding
from phasescope.text.synthetic import RetrievalVocabulary


def trials() -> list[Trial]:
    """One context in six layouts with nine questions."""
    protocol = PrefixPadding(pairs=9, contexts=1, residues=6, questions=9)
    return list(next(protocol.batches(RetrievalVocabulary.contiguous(16, 24, 24), np.random.default_rng(0))))


def test_a_group_is_one_layout_and_puts_every_prompt_together_again() -> None:
    """Prefix and suffix of each group are the prompts, and every trial is in one group."""
    asked = trials()
    found = list(contexts(asked))
    assert [len(group.trials) for group in found] == [9] * 6
    assert sorted(index for group in found for index in group.trials) == list(range(54))
    for group in found:
        for index, suffix_T in zip(group.trials, group.suffix_BT, strict=True):
            assert (*group.prefix_T, *suffix_T) == asked[index].prompt_ids
        assert group.tokens == len(asked[0].prompt_ids) - 1 + 9


def test_without_sharing_every_token_of_every_prompt_is_read() -> None:
    """The reference: one prompt per trial."""
    asked = trials()
    assert sum(group.tokens for group in contexts(asked, share=False)) == sum(
        len(t.prompt_ids) for t in asked
    )


def test_prompts_may_be_arrays() -> None:
    """Builders of long prompts keep them as arrays, which hold less memory than tuples."""
    asked = trials()
    arrays = [dataclasses.replace(t, prompt_ids=np.array(t.prompt_ids, dtype=np.int32)) for t in asked]  # type: ignore[arg-type]
    for one, other in zip(contexts(asked), contexts(arrays), strict=True):
        assert one.trials == other.trials
        np.testing.assert_array_equal(one.prefix_T, other.prefix_T)
        np.testing.assert_array_equal(one.suffix_BT, other.suffix_BT)


@pytest.mark.parametrize("change", [{"generate": 4}, {"answer_ids": (1, 2)}, {"layout": 7}, {"cluster": "x"}])
def test_trials_that_differ_in_more_than_their_prompt_are_kept_apart(change: dict[str, object]) -> None:
    """One forward asks questions of one layout, continued equally long."""
    asked = trials()[:9]
    asked[4] = dataclasses.replace(asked[4], **change)
    assert sorted(len(group.trials) for group in contexts(asked)) == [1, 8]
