"""Every part that turns characters into positions finds a fact at the same token."""

from pathlib import Path

import pytest

from phasescope.checkpoints import smollm2
from phasescope.errors import MissingExtraError, UsageError
from phasescope.mitigations import pack_text, warn
from phasescope.text.locate import Locator, Sample
from phasescope.text.positions import TokenizedText, token_at
from phasescope.text.prompts import Prompt
from phasescope.text.rendered import Page, Places
from phasescope.text.tokens import Tokenizer
from tests.builders.text_tokenizer import load, save

from ..mitigations.test_pack import profile

KEYS = ["漢", "漢字", "🙂", "👩‍👩‍👧", "ไทย", "é", "e\u0301", "한국", "שלום", "note"]
"""Of several bytes a character, joined by zero-width joiners, with combining marks, and plain."""


def first_byte_token(text: str, character: int, tokenizer: Tokenizer) -> int:
    """Count the bytes of the tokens' own spellings, of which one letter is one byte."""
    ids = tokenizer.encode(text)
    before = len(text[:character].encode())
    pieces = [len(tokenizer.fast.id_to_token(token)) for token in ids]
    seen = 0
    for index, size in enumerate(pieces):
        seen += size
        if seen > before:
            return index
    raise AssertionError(text)


@pytest.fixture(params=["small", "with a start", "smollm2"], scope="module")
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Byte-level tokenizers, with and without a token in front of every text, and a real one."""
    if request.param == "smollm2":
        try:
            return Tokenizer.load(smollm2.folder())
        except MissingExtraError as error:
            pytest.skip(str(error))
    return load(tmp_path_factory.mktemp("tokenizer"), start=request.param == "with a start")


@pytest.mark.parametrize("key", KEYS)
def test_audit_pack_warn_and_sweep_find_a_key_at_its_first_byte(key: str, tokenizer: Tokenizer) -> None:
    """The token of the first byte, told by the bytes of the tokens alone; version 0.1 packed by the last one."""
    text = f"the text below is here to fill\nanswer {key} is a value\nplease go on"
    extra = len(tokenizer.start_ids)
    truth = first_byte_token(text, text.index(key), tokenizer) + extra
    (audited,) = Locator(tokenizer, bos=True).place([Sample("1", text, key)])
    (warned,) = warn(text, [key], profile(0.9, 0.9, 0.1, 0.1), tokenizer)
    (packed,) = pack_text(text, [key], profile(0.9, 0.9, 0.1, 0.1), tokenizer).before
    marked = text.replace(key, f"<src>{key}")
    places = Places(placement="front", mark="<pad>", second_mark="</pad>", source_mark="<src>")
    page = Page.of(
        tokenizer, Prompt(name="p", prompt=marked, expected=" yes"), places, chat=False, system=None
    )
    assert (audited, warned.position, packed.position, page.source) == (truth,) * 4


def test_a_token_without_characters_holds_none() -> None:
    """And behind the last token there is nothing."""
    assert token_at([(0, 2), (2, 2), (2, 5)], 2) == 2
    assert token_at([(0, 2), (2, 2)], 2) is None


def test_pads_go_in_front_of_whole_characters_only(tmp_path: Path) -> None:
    """The second byte-token of a character begins no text."""
    read = TokenizedText.of("a 漢 b", Tokenizer.load(save(tmp_path)))
    assert read.begins(2) or read.begins(1)
    assert len(read) == len(read.ids)


@pytest.mark.parametrize("text", ["a \ud800 b", "\udfff"])
def test_half_a_character_is_refused(tmp_path: Path, text: str) -> None:
    """JSON can carry lone surrogates, which no tokenizer takes."""
    tokenizer = Tokenizer.load(save(tmp_path))
    for ask in (tokenizer.encode, tokenizer.encode_spans, lambda t: tokenizer.encode_many([t])):
        with pytest.raises(UsageError, match="half a character"):
            ask(text)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": "1.0"}', '{"model": {"type": "BPE"}}', "\x00" * 50]
)
def test_a_tokenizer_that_cannot_be_read_is_one_line(tmp_path: Path, content: str) -> None:
    """Whatever its library does, a panic included."""
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UsageError, match=r"tokenizer\.json") as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)
