"""Pads have exactly the tokens asked for, or there are none."""

import pytest

from phasescope import UsageError
from phasescope.text.padding import FAMILIES, Family, Style, even, exact_pads, parse_families
from tests.builders.text_tokenizer import load


def by_words(texts):
    """A tokenizer of the plainest kind: a token per letter that is no blank; texts with ! do not fit."""
    return [
        None if "!" in text else tuple(map(ord, text.replace(" ", "").replace("\n", ""))) for text in texts
    ]


def test_every_length_is_met_exactly_by_the_shortest_text():
    """Two units and the closing, which counts where it is a token; no pad is no text."""
    pads = exact_pads([Style((" =",), closing=".")], [0, 1, 3], by_words)
    assert pads.usable
    assert pads.texts == {0: "", 1: ".", 3: " = =."}
    assert {length: len(ids) for length, ids in pads.ids.items()} == {0: 0, 1: 1, 3: 3}


def test_the_first_style_that_has_every_length_is_taken_whole():
    """Styles are not mixed: one that skips a length gives way altogether."""
    twos, ones = Style((" ab",), closing=""), Style((" c",), closing="")
    assert exact_pads([twos, ones], [2, 3], by_words).texts == {0: "", 2: " c c", 3: " c c c"}


def test_what_no_style_can_meet_is_told_not_approximated():
    """The lengths that the best style lacks."""
    pads = exact_pads([Style((" ab",), closing=""), Style(("!",))], [2, 3, 4, 5], by_words)
    assert (pads.usable, pads.missing) == (False, (3, 5))
    assert 3 not in pads.texts


def test_pads_that_take_turns_with_the_length_are_uneven():
    """Runs merge to tokens of two: odd lengths end in another token than even ones, a period of their own."""

    def merging(texts):
        return [(*(2,) * (text.count("-") // 2), *(1,) * (text.count("-") % 2)) for text in texts]

    assert exact_pads([Style(("-",), closing="")], [3, 4], merging).uneven is False  # 5 and 7: … 2 2 1
    assert even({3: (9, 1, 1), 4: (9, 1, 1, 1), 6: (9, 1, 1, 1, 1, 1)})
    assert not even({4: (1, 1, 1, 8), 5: (1, 1, 1, 1, 7), 6: (1, 1, 1, 1, 1, 8)})
    assert not even({4: (1, 2, 1, 2), 5: (1, 2, 1, 2, 1), 6: (1, 2, 1, 2, 1, 2)})
    assert even({0: (), 1: (8,), 2: (1, 8), 3: (1, 1, 8)})


def test_the_families_of_the_user_are_told_apart_and_nonsense_is_refused():
    """Names, own texts and own ids."""
    families = parse_families(["line", "text:Read on.", "ids:4,5", "text:Or not."])
    assert [family.name for family in families] == ["line", "text 1", "ids 2", "text 3"]
    assert families[2].ids == (4, 5)
    for bad in (["lines"], ["text:"], ["ids:"], ["ids:a"], ["ids:-1"], [], ["line", "line"]):
        with pytest.raises(UsageError, match="give"):
            parse_families(bad)


def test_an_own_text_is_cut_between_its_tokens(tmp_path):
    """Its units are the characters of its tokens, in order."""
    tokenizer = load(tmp_path)
    styles = Family.parse("text:the scale, yes").styles(tokenizer)
    assert "".join(styles[0].units) == "the scale, yes"
    assert all(len(tokenizer.encode(unit)) == 1 for unit in styles[0].units)


def test_all_families_have_styles_that_grow():
    """Two hundred texts of each style are different and no shorter than those before."""
    for styles in FAMILIES.values():
        for style in styles:
            texts = list(style.texts(200))
            assert len(texts[-1]) >= 200
