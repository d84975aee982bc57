"""A tokenizer of made-up words, for tests and benchmarks on machines that have no real one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from phasescope.tokens import Tokenizer

CONSONANTS, VOWELS = "bcdfghjklmnprstvwxyz", "aeiou"
CONTROL = ("<|start|>", "<|user|>", "<|model|>", "<|end|>")
CHAT = "{{ bos_token }}{% for message in messages %}<|user|>{{ message.content }}<|end|>{% endfor %}<|model|>"


def made_words(count: int, seed: int = 0, syllables: int = 3) -> list[str]:
    """So many different words of equally many syllables, in random order."""
    rng = np.random.default_rng(seed)
    letters = len(CONSONANTS) * len(VOWELS)
    numbers = rng.permutation(letters**syllables)[:count]
    digits = numbers[:, None] // letters ** np.arange(syllables) % letters
    return [
        "".join(CONSONANTS[digit // len(VOWELS)] + VOWELS[digit % len(VOWELS)] for digit in word)
        for word in digits.tolist()
    ]


def made_tokenizer(
    words: Sequence[str], *, name: str = "made", template: str | None = CHAT, bos: bool = False
) -> Tokenizer:
    """A byte-level BPE in which every word, with its blank and as well without it, is one token.

    So is every beginning of a word, as merges go letter by letter. Everything else is read byte by byte.

    Args:
        words: of small letters and capitals.
        name: what a report calls it.
        template: the chat template.
        bos: whether `<|start|>` is put in front of every text.
    """
    vocabulary = {piece: index for index, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in words:
        for whole in (f"Ġ{word}", word):
            for end in range(1, len(whole)):
                if whole[: end + 1] not in vocabulary:
                    vocabulary[whole[: end + 1]] = len(vocabulary)
                    merges.append((whole[:end], whole[end]))
    fast = FastTokenizer(models.BPE(vocab=vocabulary, merges=merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(token, special=True) for token in CONTROL])
    if bos:
        start = fast.token_to_id(CONTROL[0])
        fast.post_processor = processors.TemplateProcessing(
            single=f"{CONTROL[0]} $A", special_tokens=[(CONTROL[0], start)]
        )
    return Tokenizer(fast, name, template, {"bos_token": CONTROL[0], "eos_token": CONTROL[3]})
