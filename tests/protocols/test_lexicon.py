"""Words for keys and values: of one token where they suffice, none of the values another's beginning."""

import numpy as np
import pytest
from benchmarks.made_tokenizer import made_tokenizer, made_words

from phasescope.errors import UsageError
from phasescope.protocols.lexicon import Lexicon, prefix_free

WORDS = made_words(2000)
SMALL = made_tokenizer(WORDS)


def texts(lexicon: Lexicon, rows: np.ndarray) -> list[str]:
    return [" ".join(lexicon.text[token] for token in row) for row in rows.tolist()]


def test_a_beginning_of_another_text_is_seen():
    """Wherever it stands in the list; equal texts are no different."""
    assert prefix_free(["river", "stone", "rive r"])
    assert not prefix_free(["river", "stone", "riv"])
    assert not prefix_free(["river", "river"])
    assert prefix_free([])


@pytest.mark.parametrize(
    ("pairs", "settings", "words"),
    [
        (20, {}, (1, 1)),
        (700, {}, (1, 1)),
        (1100, {}, (2, 1)),
        (5000, {}, (2, 2)),
        (20, {"value_words": 2}, (1, 2)),
        (20, {"key_words": 1, "value_words": 3}, (1, 3)),
        (20, {"key_words": 3}, (3, 1)),
    ],
)
def test_keys_and_values_are_of_as_few_words_as_suffice(pairs, settings, words):
    """Keys grow first; all keys differ, all values differ, and no value begins another."""
    lexicon = Lexicon.choose(SMALL, pairs, **settings)
    assert (lexicon.key_words, lexicon.value_words) == words
    rng, asked = np.random.default_rng(0), range(pairs // 2, pairs // 2 + 4)
    keys, values = lexicon.draw_keys(pairs, rng), lexicon.draw_values(pairs, asked, rng)
    assert len(np.unique(keys, axis=0)) == len(np.unique(values, axis=0)) == pairs
    assert prefix_free(texts(lexicon, values))
    assert not set(keys.ravel()) & set(values.ravel())
    assert not {*keys.ravel(), *values.ravel()} & set(lexicon.fillers.tolist())


def test_every_word_is_one_token_in_its_place():
    """Their text, with blanks, is encoded to their ids."""
    lexicon = Lexicon.choose(SMALL, 50, value_words=2)
    values = lexicon.draw_values(50, range(5), np.random.default_rng(3))
    for row, text in zip(values.tolist(), texts(lexicon, values), strict=True):
        assert SMALL.encode(f" {text}") == row


def test_neighbouring_keys_differ_in_their_first_word():
    """So the questions of one prompt part at their key's first token."""
    lexicon = Lexicon.choose(SMALL, 1100)
    first = lexicon.draw_keys(1100, np.random.default_rng(1))[:, 0]
    assert all(len(set(first[at : at + 50].tolist())) == 50 for at in range(0, 1050, 50))


def test_contexts_differ_even_with_few_pairs():
    """A handful of pairs is drawn anew from hundreds of words."""
    lexicon, rng = Lexicon.choose(SMALL, 4), np.random.default_rng(0)
    seen = {token for _ in range(200) for token in lexicon.draw_keys(4, rng)[:, 0].tolist()}
    assert len(seen) > 150


def test_capitals_join_before_keys_get_longer():
    """Where small letters are too few for one token each."""
    mixed = made_tokenizer([*WORDS[:1200], *(word.title() for word in WORDS[1200:])])
    lexicon = Lexicon.choose(mixed, 800)
    assert (lexicon.key_words, lexicon.value_words) == (1, 1)
    assert any(lexicon.text[token].istitle() for token in lexicon.keys.tolist())
    few = Lexicon.choose(mixed, 20)
    assert all(lexicon.text[token].islower() for token in lexicon.keys.tolist() if token in few.text)


def test_words_of_the_question_are_not_used():
    """A key must not stand in the instruction."""
    taken = {token for token, _ in list(SMALL.words())[::2]}
    lexicon = Lexicon.choose(SMALL, 20, taken=taken)
    assert not taken & {*lexicon.keys.tolist(), *lexicon.values.tolist(), *lexicon.fillers.tolist()}


def test_asked_values_are_said_in_equally_many_tokens():
    """A chat model begins its answer without a blank, and then words are of several tokens."""
    half = WORDS[::2]
    lexicon = Lexicon.choose(made_tokenizer(WORDS, bare=half), 400, bare=True)
    assert {lexicon.text[token] for token in lexicon.askable.tolist()} == set(half) & {
        lexicon.text[token] for token in lexicon.values.tolist()
    }
    asked = range(390, 400)
    values = lexicon.draw_values(400, asked, np.random.default_rng(0))
    assert set(values[asked, 0].tolist()) <= set(lexicon.askable.tolist())
    assert len(np.unique(values)) == 400
    letters = Lexicon.choose(made_tokenizer(WORDS, bare=[]), 400, bare=True)
    assert {len(letters.text[token]) for token in letters.askable.tolist()} == {
        6
    }  # three syllables are commonest


def test_too_few_words_are_refused():
    """With how many there are."""
    with pytest.raises(UsageError, match="too few for 3 pairs"):
        Lexicon.choose(made_tokenizer(WORDS[:100]), 3)
    with pytest.raises(UsageError, match="too few for 5000 pairs"):
        Lexicon.choose(SMALL, 5000, key_words=1)
