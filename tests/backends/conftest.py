"""A small tokenizer, planted servers, and real ones where they are installed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from phasescope import tokens
from phasescope.backends.openai_client import Limits

QUICK = Limits(timeout=5.0, tries=4, first_wait=0.001, longest_wait=0.01, patience=20.0)
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}<|assistant|>"
)


def small_tokenizer(*, start: bool = False, template: bool = True) -> tokens.Tokenizer:
    """One token per word of three letters, per letter, digit and common sign; blanks belong to what follows."""
    words = ["".join(letters) for letters in itertools.product("bdfgklmnprs", "aeiou", "bdfgklmnprst")]
    texts = [*map(chr, range(33, 127)), *words, "\u010a", "\u0120"]
    known = [*texts, *(f"\u0120{text}" for text in texts[:-2])]
    fast = Tokenizer(models.WordLevel({text: index for index, text in enumerate(known)}, unk_token="?"))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(
        [AddedToken(text, special=True) for text in ("<|start|>", "<|user|>", "<|assistant|>", "<|end|>")]
    )
    if start:
        number = fast.token_to_id("<|start|>")
        fast.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", number)]
        )
    return tokens.Tokenizer(fast, "small", TEMPLATE if template else None)


@pytest.fixture(scope="session")
def small() -> tokens.Tokenizer:
    """The small tokenizer."""
    return small_tokenizer()


@pytest.fixture
def small_folder(tmp_path: Path, small: tokens.Tokenizer) -> Path:
    """The same as a folder."""
    folder = tmp_path / "small"
    folder.mkdir()
    small.fast.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder
