"""A tokenizer of made-up words, for tests and benchmarks on machines that have no real one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from phasescope.text.tokens import Tokenizer

CONSONANTS, VOWELS = "bcdfghjklmnprstvwxyz", "aeiou"
CONTROL = ("<|start|>", "<|user|>", "<|model|>", "<|end|>")
CHAT = "{{ bos_token }}{% for message in messages %}<|user|>{{ message.content }}<|end|>{% endfor %}<|model|>"


def made_words(count: int, seed: int = 0) -> list[str]:
    """So many different words of two or three syllables, in random order; many begin another."""
    rng = np.random.default_rng(seed)
    syllables = np.array([consonant + vowel for consonant in CONSONANTS for vowel in VOWELS])
    short = [first + second for first in syllables for second in syllables]
    number = rng.permutation(len(short) * len(syllables))
    long = (short[index // len(syllables)] + syllables[index % len(syllables)] for index in number)
    some = rng.permutation(short)[: count // 4].tolist()
    words = [*some, *(str(next(long)) for _ in range(count - len(some)))]
    return [words[index] for index in rng.permutation(count)]


def made_tokenizer(
    words: Sequence[str],
    *,
    bare: Sequence[str] | None = None,
    name: str = "made",
    template: str | None = CHAT,
    bos: bool = False,
) -> Tokenizer:
    """A byte-level tokenizer in which every word with a blank before it is one token.

    Everything else is read byte by byte.

    Args:
        words: of small letters and capitals.
        bare: words that are tokens without a blank, too; by default all of them.
        name: what a report calls it.
        template: the chat template.
        bos: whether `<|start|>` is put in front of every text.
    """
    pieces = [
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *(f"Ġ{word}" for word in words),
        *(words if bare is None else bare),
    ]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    fast = FastTokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(token, special=True) for token in CONTROL])
    if bos:
        start = fast.token_to_id(CONTROL[0])
        fast.post_processor = processors.TemplateProcessing(
            single=f"{CONTROL[0]} $A", special_tokens=[(CONTROL[0], start)]
        )
    return Tokenizer(fast, name, template, {"bos_token": CONTROL[0], "eos_token": CONTROL[3]})
