"""Three published benchmarks, written anew, visit the phases that are said of them."""

import numpy as np
import pytest
from examples.audits import mqar, ruler, vllm

from phasescope.auditing.samples import Sample
from phasescope.text.locate import Locator


def positions(records, locator):
    samples = [Sample("", record["prompt"], record["needle"]) for record in records]
    places = locator.place(samples)
    assert all(isinstance(place, int) for place in places)
    return np.array(places)


def counts(position_N, stride):
    return np.bincount(position_N % stride, minlength=stride)


def test_rulers_filler_line_is_24_tokens(real_tokenizer):
    """With its line end, as it is repeated: a multiple of 8."""
    line = len(real_tokenizer.encode((ruler.FILLER + "\n") * 10)) / 10
    assert line == 24


def test_rulers_needle_stands_at_one_phase_of_8_and_its_answer_at_few(real_tokenizer, rng):
    """The needle's line begins at c + 24 k; the number in it is spread by the tokens of its key alone."""
    records = list(ruler.niah_single_1(real_tokenizer, rng, samples=200))
    needle = positions(records, Locator(real_tokenizer, find="One of the special magic numbers"))
    assert (counts(needle, 8) > 0).sum() == 1
    answer = counts(positions(records, Locator(real_tokenizer)), 8)
    assert answer.max() > 2.0 * 200 / 8
    assert answer.min() <= 0.1 * 200 / 8


def test_vllms_needle_stands_at_one_phase_of_4_and_two_of_8(real_tokenizer, rng):
    """28 tokens a line; a beginning-of-text token moves all of them alike."""
    assert len(real_tokenizer.encode(vllm.FILLER * 10)) - len(real_tokenizer.encode(vllm.FILLER * 9)) == 28
    records = list(vllm.niah(real_tokenizer, rng))
    assert len(records) == 60
    found = positions(records, Locator(real_tokenizer))
    for first in (0, len(real_tokenizer.start_ids)):
        assert (counts(found + first, 4) > 0).sum() == 1
        assert (counts(found + first, 8) > 0).sum() == 2


@pytest.mark.parametrize("asked", [mqar.keys, mqar.queries])
def test_mqar_asks_for_even_positions_only(asked):
    """Keys and queries alike."""
    found = np.array([record["position"] for record in asked(np.random.default_rng(0))])
    assert counts(found, 2).tolist() == [len(found), 0]
    assert (counts(found, 8) > 0).sum() == 4


def test_mqar_sequences_ask_every_key_once():
    """Each key again at the position that is said to ask for it."""
    ids, keys, asked = mqar.sequence(np.random.default_rng(0))
    assert sorted(ids[asked]) == sorted(ids[keys])
    assert len(set(asked.tolist())) == mqar.PAIRS
