"""Text that is exactly so many tokens in front of a prompt and leaves every token of the prompt as it was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ..text.locate import Locator
from .samples import Sample

WORDS = ("pad", "and", "the", ".")
ENDS = ("\n", "", " ", "\n\n", ". ")
FORMS = tuple((word, end, less) for word, end, less in product(WORDS, ENDS, (1, 0, 2)))
"""Pads that are tried in turn: a word that is repeated, what stands at the end, and how many tokens that
end is thought to take. A byte-level tokenizer needs a line end in front of a letter, and nothing in front
of a blank; a tokenizer that marks the beginning of words needs a blank."""
FAILED = -1
"""The form of a sample for which no pad left the prompt's tokens alone."""


def pad_text(tokens: int, form: int) -> str | None:
    """The pad of a form, meant to be so many tokens; None where the form has none that short."""
    word, end, less = FORMS[form]
    count = tokens - less
    return " ".join([word] * count) + end if count > 0 or (count == 0 and end) else None


class Padder:
    """Finds for each sample a pad whose effect on the tokens is proven by encoding prompt and pad together."""

    def __init__(self, locator: Locator) -> None:
        self.locator = locator
        self._likely: list[int] = []

    def fit(self, samples: Sequence[Sample], tokens: Sequence[int]) -> list[int]:
        """The form of each sample's pad, or `FAILED`.

        A form fits when the text with it has the ids of the text without it, with just so many more in one
        place: ids[:a] + pad + ids[a:].

        Args:
            samples: with prompts that are texts; a conversation has no front that is known.
            tokens: how many each sample needs, at least 1.
        """
        forms = [FAILED] * len(samples)
        texts = [self.locator.text(sample) if isinstance(sample.prompt, str) else None for sample in samples]
        open_ = [index for index, text in enumerate(texts) if text is not None]
        plain = dict(zip(open_, self._encoded([texts[index] or "" for index in open_]), strict=True))
        for form in [*self._likely, *(f for f in range(len(FORMS)) if f not in self._likely)]:
            if not open_:
                break
            tried = [
                (i, text) for i in open_ if (text := self._with(samples[i], tokens[i], form)) is not None
            ]
            for (index, _), ids in zip(tried, self._encoded([text for _, text in tried]), strict=True):
                if inserted(plain[index], ids, tokens[index]):
                    forms[index] = form
                    # What fitted once is tried first: another prompt of the benchmark begins alike.
                    if form not in self._likely:
                        self._likely.append(form)
            open_ = [index for index in open_ if forms[index] == FAILED]
        return forms

    def _with(self, sample: Sample, tokens: int, form: int) -> str | None:
        pad = pad_text(tokens, form)
        return None if pad is None else self.locator.text(sample._replace(prompt=f"{pad}{sample.prompt}"))

    def _encoded(self, texts: Sequence[str]) -> list[np.ndarray]:
        assert self.locator.tokenizer is not None
        return [np.array(ids, dtype=np.int64) for ids in self.locator.tokenizer.encode_many(texts)]


def inserted(before: np.ndarray, after: np.ndarray, tokens: int) -> bool:
    """Whether `after` is `before` with so many more ids in one place."""
    if len(after) != len(before) + tokens:
        return False
    differ = np.flatnonzero(before != after[: len(before)])
    first = int(differ[0]) if len(differ) else len(before)
    return bool(np.array_equal(after[first + tokens :], before[first:]))
