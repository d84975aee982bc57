"""The fixed words of a prompt, and the lines between them."""

import numpy as np
import pytest
from benchmarks.made_tokenizer import made_tokenizer, made_words

from phasescope.errors import UsageError
from phasescope.protocols.haystack import Frame, Lines


@pytest.fixture(scope="module")
def tokenizer():
    return made_tokenizer(made_words(30), bos=True)


def test_a_frame_holds_everything_but_lines_and_key(tokenizer):
    """A completion prompt begins with the BOS that the model expects."""
    frame = Frame.build(tokenizer, "Lines:\n", "Which? {key}:", chat=False)
    assert tokenizer.decode(frame.head) == "<|start|>Lines:\n"
    assert tokenizer.decode(frame.ask) == "Which?"
    assert tokenizer.decode(frame.close) == ":"
    assert tokenizer.decode([frame.colon, frame.newline]) == ":\n"
    assert frame.content(50) == (1, 50)


def test_a_chat_frame_counts_the_template(tokenizer):
    """The template's own tokens are in head and close; the user's text is between them."""
    frame = Frame.build(tokenizer, "Lines:\n", "Which is {key}?", chat=True)
    assert tokenizer.decode(frame.head) == "<|start|><|user|>Lines:\n"
    assert tokenizer.decode(frame.close) == "?<|end|><|model|>"
    assert frame.content(50) == (2, 48)


@pytest.mark.parametrize(
    ("instruction", "question", "problem"),
    [
        ("Lines", " {key}:", "line break"),
        ("Lines\n", "key:", "hold '{key}' once"),
        ("Lines\n", "{key}:", "a blank before it"),
        ("Lines\n", " {key} {key}", "once"),
    ],
)
def test_texts_without_what_they_need_are_refused(tokenizer, instruction, question, problem):
    """Each in one line."""
    with pytest.raises(UsageError, match=problem):
        Frame.build(tokenizer, instruction, question, chat=False)


@pytest.mark.parametrize("fillers", [0, 2, 3, 7, 8, 9, 100, 4001])
def test_lines_have_the_asked_size_and_keep_their_order(fillers):
    """Records and filler lines add up; a filler line is a word and a break at least."""
    for seed in range(5):
        lines = Lines.draw(50, 4, fillers, np.random.default_rng(seed))
        assert lines.size == 50 * 4 + fillers
        inside = np.zeros(lines.size, dtype=bool)
        inside[lines.start_P[:, None] + np.arange(4)] = True
        assert inside.sum() == 200
        assert (np.diff(lines.start_P) >= 4).all()
        ends = np.sort(np.concatenate([lines.start_P + 3, lines.end_F]))
        assert ends[-1] == lines.size - 1
        assert (np.diff(ends, prepend=-1) >= 2).all()


def test_gaps_between_records_differ():
    """Records don't stand in step, so their residues are mixed."""
    lines = Lines.draw(4000, 4, 16000, np.random.default_rng(0))
    counts = np.bincount(lines.start_P % 8, minlength=8)
    assert counts.min() > 400


def test_lines_are_filled_with_records_fillers_and_breaks():
    """Every token is a record's, a break at a filler line's end, or a filler."""
    lines = Lines.draw(3, 4, 20, np.random.default_rng(1))
    record_PR = np.arange(100, 112).reshape(3, 4)
    ids = lines.fill(record_PR, np.array([1, 2]), 9, np.random.default_rng(2))
    assert ids[lines.start_P].tolist() == [100, 104, 108]
    assert (ids[lines.end_F] == 9).all()
    assert (ids < 3).sum() == 20 - len(lines.end_F)
