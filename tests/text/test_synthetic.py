"""Vocabularies and draws of synthetic records."""

import numpy as np
import pytest
from pydantic import ValidationError

from phasescope import UsageError
from phasescope.text.synthetic import RetrievalVocabulary, draw_fillers, draw_pairs

VOCABULARY = RetrievalVocabulary.contiguous(8, 20, 12)


def test_a_contiguous_vocabulary_numbers_fillers_then_keys_then_values() -> None:
    """Ids 0 … n − 1, and as many records as the smaller of keys and values allows."""
    assert VOCABULARY.fillers == tuple(range(8))
    assert VOCABULARY.keys == tuple(range(8, 28))
    assert VOCABULARY.values == tuple(range(28, 40))
    assert VOCABULARY.pairs == 12


def test_a_vocabulary_survives_json() -> None:
    """A checkpoint's card can carry it."""
    assert RetrievalVocabulary.model_validate_json(VOCABULARY.model_dump_json()) == VOCABULARY


@pytest.mark.parametrize(
    "sets", [((0, 1), (1, 2), (3,)), ((0, 0), (1,), (2,)), ((), (1,), (2,)), ((-1,), (1,), (2,))]
)
def test_sets_that_share_a_token_or_hold_none_are_refused(sets: tuple[tuple[int, ...], ...]) -> None:
    """A filler that is also a key would be a second, unplanned source."""
    with pytest.raises(ValidationError, match="share no token"):
        RetrievalVocabulary(fillers=sets[0], keys=sets[1], values=sets[2])


def test_pairs_repeat_no_key_and_no_value_and_cover_the_vocabulary() -> None:
    """Each record is unambiguous, and no key or value is out of reach."""
    rng = np.random.default_rng(0)
    drawn = np.stack([draw_pairs(VOCABULARY, 12, rng) for _ in range(50)])
    for pairs in drawn:
        assert len(set(pairs[:, 0].tolist())) == len(set(pairs[:, 1].tolist())) == 12
    assert set(drawn[..., 0].flat) == set(VOCABULARY.keys)
    assert set(drawn[..., 1].flat) == set(VOCABULARY.values)


def test_keys_and_values_may_be_one_set_of_names() -> None:
    """32 names make 16 records of 32 different names, each of them a key here and a value there; JSON keeps it."""
    one = VOCABULARY.shared()
    assert (one.shares, one.pairs, len(one.every), one.shared()) == (True, 16, 40, one)
    assert RetrievalVocabulary.model_validate_json(one.model_dump_json()) == one
    rng = np.random.default_rng(0)
    drawn = np.stack([draw_pairs(one, 16, rng) for _ in range(200)])
    assert all(len(set(pairs.flat)) == 32 for pairs in drawn)
    assert set(drawn[..., 0].flat) == set(drawn[..., 1].flat) == set(one.keys)
    with pytest.raises(UsageError, match="allows 1 to 16"):
        draw_pairs(one, 17, rng)
    with pytest.raises(ValidationError, match="a record needs two"):
        RetrievalVocabulary(fillers=(0,), keys=(1,), values=(1,))


@pytest.mark.parametrize("pairs", [0, 13])
def test_more_pairs_than_there_are_names_are_refused(pairs: int) -> None:
    """The message says how many the vocabulary allows."""
    with pytest.raises(UsageError, match=f"{pairs} pairs asked for; this vocabulary allows 1 to 12"):
        draw_pairs(VOCABULARY, pairs, np.random.default_rng(0))


def test_fillers_are_drawn_uniformly_from_the_filler_set_alone() -> None:
    """Each of the 8 fillers has its share of 8,000 draws to within five standard deviations."""
    drawn = draw_fillers(VOCABULARY, 8000, np.random.default_rng(1))
    counts = np.bincount(drawn, minlength=8)
    assert len(counts) == 8
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000 * 7 / 8)


def test_the_same_seed_draws_the_same() -> None:
    """Every draw comes from the generator that is passed in."""
    draws = [
        (draw_pairs(VOCABULARY, 5, rng).tolist(), draw_fillers(VOCABULARY, 9, rng).tolist())
        for rng in (np.random.default_rng(7), np.random.default_rng(7), np.random.default_rng(8))
    ]
    assert draws[0] == draws[1] != draws[2]
