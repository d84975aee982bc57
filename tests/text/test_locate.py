"""From text to the token that a needle begins with."""

import numpy as np
import pytest

from phasescope.auditing.samples import Sample
from phasescope.errors import UsageError
from phasescope.text.locate import NO_NEEDLE, NO_PLACE, NOWHERE, TWICE, Locator, enough
from phasescope.text.positions import token_at

TEXTS = [
    ("The grass is green. 🦀🦀 the code is Ωmega é here", "Ωmega"),
    ("The grass is green. 🦀🦀 the code", "🦀🦀"),
    ("the code", "the code"),
    ("The grass is green", "een"),
    ("a\n\n  the sky\tis blue", "the sky"),
    ("日本語 the 日本", "the 日本"),
    ("e\u0301 combined \u00e9 the code", "the code"),
]


def sample(prompt, needle, **more):
    return Sample("line 1", prompt, needle, **more)


@pytest.mark.parametrize(("text", "needle"), TEXTS)
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_the_fast_form_finds_the_token_that_the_spans_say(request, kind, text, needle):
    """Batched encoding equals the plain search in `encode_spans`, bytes of one character included."""
    tokenizer = request.getfixturevalue(kind)
    ids, spans = tokenizer.encode_spans(text)
    (place,) = Locator(tokenizer, occurrence="first").place([sample(text, needle)])
    start = text.find(needle)
    assert place == token_at(spans, start)
    # No token before it holds any character of the needle, and it holds the first one.
    assert all(end <= start for _, end in spans[:place])
    assert spans[place][0] <= start < spans[place][1]
    assert 0 <= place < len(ids)


PIECES = (
    *(
        "the code",
        " is",
        "Ωmega",
        "é",
        "e\u0301",
        "🦀",
        "日本語",
        "4711",
        "1234567890",
        "The grass",
        "don't",
        "x" * 90,
    ),
    *(
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t",
        " \n ",
        ".",
        "...",
        "!?",
        "(",
        "```",
        "<|end|>",
        "<s>",
        "\u00a0",
        "\u200d",
    ),
)


def scrambled(rng):
    """Words, blanks, marks, digits, special tokens and letters of many bytes in any order, and a needle within."""
    before, after = ("".join(rng.choice(PIECES, int(rng.integers(1, n)))) for n in (40, 160))
    return sample(before + "needle7" + after, "needle7")


def test_a_text_that_is_cut_behind_the_needle_has_the_same_place(byte_level, byte_fallback):
    """As the whole text has, whatever stands around the cut."""
    rng = np.random.default_rng(0)
    samples = [scrambled(rng) for _ in range(400)]
    cut = [s for s in samples if len(enough(s.prompt, s.prompt.index("needle7"), 7)) < len(s.prompt)]
    assert len(cut) > 200
    assert Locator(byte_level).splits
    assert not Locator(byte_fallback).splits
    for tokenizer in (byte_level, byte_fallback):
        whole = [token_at(tokenizer.encode_spans(s.prompt)[1], s.prompt.index("needle7")) for s in samples]
        assert Locator(tokenizer).place(samples) == whole


def test_a_real_tokenizer_gives_the_same_place_to_a_cut_text(real_tokenizer):
    """Qwen, Llama and DeepSeek cut at blanks, and their lookahead ends there."""
    rng = np.random.default_rng(1)
    samples = [scrambled(rng) for _ in range(300)]
    assert Locator(real_tokenizer).splits
    whole = [token_at(real_tokenizer.encode_spans(s.prompt)[1], s.prompt.index("needle7")) for s in samples]
    assert Locator(real_tokenizer).place(samples) == whole


def test_a_text_without_a_word_in_between_is_not_cut():
    """A run of letters or blanks behind the needle may be one token with it."""
    text = "the needle" + "x" * 500 + " y"
    assert enough(text, 4, 6) == text
    assert enough("the needle and more " + "w " * 300, 4, 6) != text


def test_the_tokens_before_a_needle_at_a_word_boundary_are_those_of_the_text_before(byte_level):
    """The position counts what an encoder gives for the text in front."""
    before = "The grass is green."
    (place,) = Locator(byte_level).place([sample(before + " the code is hidden", " the code")])
    assert place == len(byte_level.encode(before))


def test_a_character_of_several_bytes_begins_at_its_first_token(byte_fallback):
    """Bytes of one character share its span; the first of them counts."""
    text = "the 🦀 a"
    ids, spans = byte_fallback.encode_spans(text)
    (place,) = Locator(byte_fallback).place([sample(text, "🦀")])
    crab = [index for index, span in enumerate(spans) if span == (4, 5)]
    assert len(crab) == 4
    assert place == crab[0]
    assert byte_fallback.fast.id_to_token(ids[place]) == "<0xF0>"


def test_blanks_that_have_no_span_belong_to_the_next_token():
    """A tokenizer that trims its offsets leaves gaps; a needle that begins in one begins with the token after."""
    assert token_at([(0, 3), (4, 7), (8, 9)], 3) == 1
    assert token_at([(0, 3), (3, 3), (4, 7)], 3) == 2
    assert token_at([(0, 3)], 5) is None


def test_what_cannot_be_placed_is_named_and_never_guessed(byte_level):
    """Not there, there twice, no needle, nothing at all: a reason each."""
    samples = [
        sample("the sky is blue", "green"),
        sample("the sky and the sky", "the sky"),
        sample("the sky", None),
        Sample("line 4"),
        sample("the sky is blue", "blue"),
    ]
    places = Locator(byte_level).place(samples)
    assert places[:4] == [NOWHERE, TWICE, NO_NEEDLE, NO_PLACE]
    assert isinstance(places[4], int)


def test_overlapping_occurrences_are_several(byte_level):
    """`aa` stands twice in `aaa`."""
    assert Locator(byte_level).place([sample("x aaa", "aa")]) == [TWICE]


def test_the_first_or_last_of_several_counts_when_asked_for(byte_level):
    """An explicit choice is no guess."""
    text = "the sky and the sky"
    (first,) = Locator(byte_level, occurrence="first").place([sample(text, "the sky")])
    (last,) = Locator(byte_level, occurrence="last").place([sample(text, "the sky")])
    assert first == 0
    assert last == len(byte_level.encode("the sky and"))


def test_a_pattern_is_located_in_the_needles_place(byte_level):
    """`{needle}` stands for the needle's text, escaped."""
    text = "The grass is green. the code is (1+1). 1+1"
    locator = Locator(byte_level, find=r"the code is .{needle}")
    (place,) = locator.place([sample(text, "1+1")])
    assert place == token_at(byte_level.encode_spans(text)[1], text.find("the code"))
    assert Locator(byte_level, find="the sea").place([sample(text, "1+1")]) == [NOWHERE]


def test_the_beginning_of_text_token_moves_every_position(byte_level):
    """`bos` counts what the tokenizer puts in front, in text and in given positions."""
    samples = [sample("the sky is blue", "blue"), Sample("line 2", position=7)]
    without, with_ = (Locator(byte_level, bos=bos).place(samples) for bos in (False, True))
    assert [after - before for before, after in zip(without, with_, strict=True)] == [1, 1]


def test_a_chat_template_is_part_of_the_prompt(byte_level):
    """The position is that in the ids which `Tokenizer.chat` gives."""
    prompt = "the sky is blue and the code is hidden"
    ids, span = byte_level.chat(prompt)
    (place,) = Locator(byte_level, chat=True).place([sample(prompt, "the code")])
    (plain,) = Locator(byte_level).place([sample(prompt, "the code")])
    assert place == plain + span[0]
    assert byte_level.decode(ids[place:]).startswith(" the code")


def test_a_conversation_is_read_message_by_message(byte_level):
    """With a template as a conversation, without as its texts."""
    messages = ({"role": "user", "content": "the sky"}, {"role": "user", "content": "the code"})
    (chat,) = Locator(byte_level, chat=True).place([sample(messages, "the code")])
    rendered = byte_level.render([dict(m) for m in messages])
    assert chat == token_at(byte_level.encode_spans(rendered)[1], rendered.find("the code"))
    (plain,) = Locator(byte_level).place([sample(messages, "the code")])
    assert plain == len(byte_level.encode("the sky\n"))


def test_given_positions_are_kept_and_moved_by_the_offset():
    """Without a tokenizer the file's positions count."""
    assert Locator(offset=3).place([Sample("line 1", "text", "text", position=4)]) == [7]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chat": True}, "--chat needs a tokenizer"),
        ({"bos": True}, "--bos needs a tokenizer"),
        ({"find": "x"}, "--find needs a tokenizer"),
    ],
)
def test_options_that_need_a_tokenizer_say_so(options, said):
    """One line each."""
    with pytest.raises(UsageError, match=said):
        Locator(**options)


def test_options_that_exclude_each_other_are_refused(byte_level):
    """A template brings its own first token; a pattern has to be one."""
    with pytest.raises(UsageError, match="give one of the two"):
        Locator(byte_level, chat=True, bos=True)
    with pytest.raises(UsageError, match="no regular expression"):
        Locator(byte_level, find="(")
