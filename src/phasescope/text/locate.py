"""From a prompt and its needle to the index of the needle's first token in what the model reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from ..errors import UsageError
from .positions import token_at
from .tokens import Tokenizer, conversation

Message = Mapping[str, str]
Occurrence = Literal["only", "first", "last"]

NOWHERE = "needle not found in the prompt"
TWICE = "needle found more than once"
NO_NEEDLE = "no needle"
NO_PLACE = "neither a position nor a prompt"
NO_TOKEN = "no token holds the needle"
MARGIN = 200
"""Characters behind a needle that are read in any case."""
BETWEEN = re.compile(r"[a-zA-Z] [a-zA-Z]")

LEFT_OUT = (NOWHERE, TWICE, NO_NEEDLE, NO_PLACE, NO_TOKEN)
"""Why a sample has no place; it is counted under its reason, never guessed."""


class Sample(NamedTuple):
    """One question of a benchmark.

    Attributes:
        where: the line or row it stands in, as an error message names it.
        prompt: the prompt's text, or the conversation's messages; None where the file holds none.
        needle: the text that the question asks for; None where the file holds none.
        position: token index of the needle's first token, as the file gives it.
        score: 0 to 1; None where the file holds none.
    """

    where: str
    prompt: str | tuple[Message, ...] | None = None
    needle: str | None = None
    position: int | None = None
    score: float | None = None


@dataclass(frozen=True)
class Locator:
    """How samples are given their token positions.

    A sample with a prompt and a needle is looked up in its own text where there is a tokenizer; any other
    sample keeps the position that its file gives, moved by `offset`.

    Attributes:
        tokenizer: of the model; None where the files give positions.
        chat: wrap each prompt in the tokenizer's chat template first.
        bos: count the tokens that the tokenizer puts in front of every text.
        find: a regular expression whose match is looked for in the needle's place; `{needle}` in it stands
            for the needle's text. None for the needle itself.
        occurrence: which of several occurrences counts; with `only`, several are a reason to leave out.
        offset: tokens added to positions that a file gives.
    """

    tokenizer: Tokenizer | None = None
    chat: bool = False
    bos: bool = False
    find: str | None = None
    occurrence: Occurrence = "only"
    offset: int = 0

    def __post_init__(self) -> None:
        if self.tokenizer is None:
            for name, wanted in (("--chat", self.chat), ("--bos", self.bos), ("--find", self.find)):
                if wanted:
                    raise UsageError(f"{name} needs a tokenizer; give one with --tokenizer")
        if self.chat and self.bos:
            raise UsageError(
                "--chat and --bos: a chat template brings its own first tokens; give one of the two"
            )
        if self.find is not None:
            try:
                re.compile(self.find.replace("{needle}", "needle"))
            except re.error as error:
                raise UsageError(f"--find {self.find!r} is no regular expression: {error}") from None

    @cached_property
    def start(self) -> int:
        """Tokens in front of every text."""
        return len(self.tokenizer.start_ids) if self.bos and self.tokenizer else 0

    @cached_property
    def splits(self) -> bool:
        """Whether the tokenizer cuts its text at blanks before it makes tokens, as byte-level ones do."""
        before = self.tokenizer.fast.pre_tokenizer if self.tokenizer else None
        return before is not None and len(before.pre_tokenize_str("a b c d")) == 4

    def text(self, sample: Sample) -> str | None:
        """What the model reads of a sample, as text; None where there is no prompt."""
        if sample.prompt is None:
            return None
        if self.chat and self.tokenizer:
            given = sample.prompt
            return self.tokenizer.render(
                conversation(given) if isinstance(given, str) else [dict(message) for message in given]
            )
        if isinstance(sample.prompt, str):
            return sample.prompt
        return "\n".join(message["content"] for message in sample.prompt)

    def character(self, text: str, needle: str) -> int | str:
        """Where the needle begins in a text, in characters, or the reason why that is not known."""
        if self.find is None:
            first = text.find(needle)
            if first < 0:
                return NOWHERE
            last = text.rfind(needle)
        else:
            pattern = self.find.replace("{needle}", re.escape(needle))
            starts = [match.start() for match in re.finditer(pattern, text)]
            if not starts:
                return NOWHERE
            first, last = starts[0], starts[-1]
        if first != last and self.occurrence == "only":
            return TWICE
        return last if self.occurrence == "last" else first

    def place(self, samples: Sequence[Sample]) -> list[int | str]:
        """The token position of each sample, or the reason why it has none.

        The fast form of `token_at` over `Tokenizer.encode_spans`: all texts are encoded together, on all
        cores, no further behind the needle than can matter, and the offsets stay where they are.
        """
        places: list[int | str] = [self._given(sample) for sample in samples]
        texts, starts, indices = [], [], []
        for index, sample in enumerate(samples):
            text = self.text(sample) if self.tokenizer and sample.needle is not None else None
            if text is None or sample.needle is None:
                continue
            start = self.character(text, sample.needle)
            if isinstance(start, str):
                places[index] = start
                continue
            texts.append(enough(text, start, len(sample.needle)) if self.splits else text)
            starts.append(start)
            indices.append(index)
        if texts and self.tokenizer:
            encoded = self.tokenizer.encode_all_spans(texts)
            for index, start, encoding in zip(indices, starts, encoded, strict=True):
                token = encoding.char_to_token(start)
                if token is None:
                    token = token_at(encoding.offsets, start)
                places[index] = NO_TOKEN if token is None else int(token) + self.start
        return places

    def _given(self, sample: Sample) -> int | str:
        """The position that the file gives."""
        if sample.position is not None:
            return sample.position + self.offset + self.start
        return NO_PLACE if sample.prompt is None or self.tokenizer is None else NO_NEEDLE


def enough(text: str, start: int, length: int) -> str:
    """The text as far as its tokens up to the needle's first can depend on it.

    A tokenizer that cuts at blanks first makes no token across a cut, and where it cuts it has looked at
    most at the blanks and the run of like characters around. So the text may end at a blank that is well
    behind the needle, if there is another word in between; otherwise all of it is needed.
    """
    end = text.find(" ", start + length + MARGIN)
    return text[:end] if end > 0 and BETWEEN.search(text, start + 1, end - 1) else text
