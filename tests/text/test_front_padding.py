"""Pads that are exactly so many tokens and leave the prompt's own alone."""

import numpy as np
import pytest

from phasescope.auditing.samples import Sample
from phasescope.text.locate import Locator
from phasescope.text.padding import FAILED, FrontPadder, inserted, pad_text


def fitted(locator, prompts, tokens):
    return FrontPadder(locator).fit([Sample("line", prompt, "x") for prompt in prompts], tokens)


@pytest.mark.parametrize("tokens", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_a_pad_adds_its_tokens_and_no_other(request, kind, tokens):
    """Whatever the prompt begins with: the new ids are the old ones behind the pad."""
    tokenizer = request.getfixturevalue(kind)
    prompts = ["the code", " the code", "\nthe code", "\n\n the", "4711", "the 🦀", "<|user|>the"]
    forms = fitted(Locator(tokenizer), prompts, [tokens] * len(prompts))
    found = [(p, f) for p, f in zip(prompts, forms, strict=True) if f != FAILED]
    assert len(found) >= (6 if kind == "byte_level" else 3)
    for prompt, form in found:
        before, after = tokenizer.encode(prompt), tokenizer.encode(pad_text(tokens, form) + prompt)
        assert len(after) == len(before) + tokens
        assert after[-len(before) :] == before or inserted(np.array(before), np.array(after), tokens)


def test_a_pad_stands_inside_a_chat_template(byte_level):
    """The template's own tokens stay, and the pad is the message's beginning."""
    locator = Locator(byte_level, chat=True)
    sample = Sample("line", "the code is hidden", "the code")
    (form,) = FrontPadder(locator).fit([sample], [5])
    assert form != FAILED
    padded = sample._replace(prompt=pad_text(5, form) + sample.prompt)
    (before,), (after,) = locator.place([sample]), locator.place([padded])
    assert after == before + 5


def test_a_conversation_has_no_front_that_is_known(byte_level):
    """It is counted as failed, not padded somewhere."""
    messages = ({"role": "user", "content": "the code"},)
    assert FrontPadder(Locator(byte_level)).fit([Sample("line", messages, "x")], [3]) == [FAILED]


def test_what_a_template_strips_is_not_padded_over(byte_level):
    """Blanks that the template removed would come back behind a pad and shift the needle: refused."""
    locator = Locator(byte_level, chat=True)
    assert FrontPadder(locator).fit([Sample("line", "  \n the code", "x")], [3]) == [FAILED]


def test_inserted_means_the_same_ids_with_more_in_one_place():
    """Not fewer, not replaced, not in two places."""
    ids = np.array([1, 2, 3, 4])
    assert inserted(ids, np.array([9, 9, 1, 2, 3, 4]), 2)
    assert inserted(ids, np.array([1, 9, 9, 2, 3, 4]), 2)
    assert inserted(ids, np.array([1, 1, 1, 2, 3, 4]), 2)
    assert not inserted(ids, np.array([9, 1, 2, 9, 3, 4]), 2)
    assert not inserted(ids, np.array([9, 9, 1, 2, 3, 5]), 2)
    assert not inserted(ids, np.array([9, 1, 2, 3, 4]), 2)
