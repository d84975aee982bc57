"""A real tokenizer without torch: text to token ids and back, chat templates, and words of one token."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from jinja2 import Template
from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

from ..errors import BrokenRecordError, UsageError, first_line, is_failure
from ..files import read_json
from .synthetic import RetrievalVocabulary
from .template import compiled, rendered

WORDS = (64, 256, 256)  # fillers, keys and values of a vocabulary made from a tokenizer
TRIED = "a b, 1 \N{LATIN SMALL LETTER U WITH DIAERESIS}"
"""A text that every tokenizer is tried on, as damaged ones break at their first text only."""
HALF = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can carry it, UTF-8 cannot."""
_MARK = "\N{WHITE LARGE SQUARE}phasescope\N{WHITE LARGE SQUARE}"


def conversation(content: str, system: str | None = None) -> list[dict[str, str]]:
    """A user's message, behind a system message where there is one."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": content}]


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """The tokenizer of a checkpoint, read from its tokenizer.json; it needs neither torch nor transformers.

    Attributes:
        fast: the tokenizer of the `tokenizers` library.
        name: what a report calls it.
        template: the chat template as its checkpoint gives it; null for a base model.
        special: the texts of named special tokens, as a template reads them (`bos_token`, `eos_token`, …).
        adds_start: whether the checkpoint asks for a `bos_token` in front of every text, even where its
            tokenizer.json doesn't put one there (DeepSeek-V3).
    """

    fast: FastTokenizer
    name: str
    template: str | None = None
    special: dict[str, str] = field(default_factory=dict)
    adds_start: bool = False

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a checkpoint's folder, or a tokenizer.json with what lies beside it.

        Raises:
            UsageError: if there is no readable tokenizer.json.
            BrokenRecordError: if a file beside it is damaged.
        """
        given = Path(path)
        file = given / "tokenizer.json" if given.is_dir() else given
        if not file.is_file():
            raise UsageError(f"no tokenizer at {path}: give a tokenizer.json, or a folder that holds one")
        with _refused(f"{file} is no tokenizer.json that can be read", "save it again"):
            fast = FastTokenizer.from_file(str(file))
            fast.no_truncation()
            fast.no_padding()
            with suppress(Exception):  # a text that it does not know is no damage
                fast.decode(fast.encode(TRIED).ids)
        folder = file.parent.resolve()
        settings = _settings(folder / "tokenizer_config.json")
        return cls(
            fast,
            folder.name,
            _template(folder, settings),
            _special(settings),
            settings.get("add_bos_token") is True,
        )

    @cached_property
    def size(self) -> int:
        """One more than the largest id, added tokens included; there may be ids that stand for nothing."""
        return max(self.fast.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def start_ids(self) -> tuple[int, ...]:
        """What is put in front of every text (a BOS, or nothing) when a server asks for special tokens."""
        plain, marked = self.encode("a"), self.fast.encode("a", add_special_tokens=True).ids
        start = tuple(marked[: marked.index(plain[0])]) if plain and plain[0] in marked else ()
        return start or ((self._bos,) if self.adds_start and self._bos is not None else ())

    def start_of(self, ids: Sequence[int]) -> tuple[int, ...]:
        """What is put in front of a text of these ids: nothing where it begins with it already."""
        return () if tuple(ids[: len(self.start_ids)]) == self.start_ids else self.start_ids

    @property
    def _bos(self) -> int | None:
        return self.fast.token_to_id(self.special.get("bos_token", ""))

    def doubled_start(self, ids: Sequence[int]) -> bool:
        """Whether a prompt begins with its BOS twice: a template gave one, and somebody added another."""
        starts = {self.start_ids, () if self._bos is None else (self._bos,)} - {()}
        return any(tuple(ids[: 2 * len(start)]) == 2 * start for start in starts)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tokenizer and its template: the same digest gives the same ids."""
        facts = [self.template, self.special, *([True] if self.adds_start else [])]
        content = self.fast.to_str() + json.dumps(facts, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of control tokens, which never stand for plain text."""
        added = self.fast.get_added_tokens_decoder()
        return frozenset(index for index, token in added.items() if token.special)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any token that the tokenizer would add around it.

        A control token that is spelt out in the text (`<|im_end|>`) becomes that token, as it does in
        every server; `special_ids` tells which ids those are.
        """
        return self.encode_spans(text)[0]

    def encode_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text, and for each the characters it stands for (first, and one past the last)."""
        with self._reading(text):
            encoding = self.fast.encode(text, add_special_tokens=False)
        return list(encoding.ids), list(encoding.offsets)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts at once, on all cores."""
        with self._reading(*texts):
            read = self.fast.encode_batch_fast(texts, add_special_tokens=False)
        return [list(encoding.ids) for encoding in read]

    def encode_all_spans(self, texts: Sequence[str]) -> list[Encoding]:
        """`encode_spans` for many texts at once, on all cores, as the library's own objects."""
        with self._reading(*texts):
            return list(self.fast.encode_batch(texts, add_special_tokens=False))

    @contextmanager
    def _reading(self, *texts: str) -> Iterator[None]:
        """Refuse in one line what the tokenizer cannot read."""
        for text in texts:
            if HALF.search(text):
                raise UsageError(
                    f"the text {text[:40]!r} holds half a character (a lone surrogate), which no tokenizer takes; "
                    "take it out"
                )
        with _refused(f"the tokenizer of {self.name} cannot read a text", "save the tokenizer again"):
            yield

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens included."""
        return str(self.fast.decode(list(ids), skip_special_tokens=False))

    def survives(self, ids: Sequence[int]) -> bool:
        """Whether the ids' text is encoded to the same ids: what a text-only server needs."""
        return self.encode(self.decode(ids)) == list(ids)

    def chat(
        self, content: str, *, system: str | None = None, thinking: bool | None = None
    ) -> tuple[list[int], tuple[int, int]]:
        """One user message in the checkpoint's chat template, ready for the model's turn.

        Args:
            content: the message.
            system: a system message before it.
            thinking: False asks a template that knows thoughts for a turn without them.

        Returns:
            the ids of the whole prompt, the template's own included, and the span of the tokens that hold
            any character of the message: first index, and one past the last.

        Raises:
            UsageError: if there is no template, it fails or changes the message, the message spells out a
                control token, or the prompt begins with its BOS twice.
        """
        before, after = self.frame(system=system, thinking=thinking)
        if self.render(conversation(content, system), thinking=thinking) != before + content + after:
            raise UsageError(
                f"the chat template of {self.name} changes the message; strip its ends of blanks or use another"
            )
        ids, spans = self.encode_spans(before + content + after)
        # Offsets may leave out the blanks of a token, so what is not before and not after is inside.
        first = sum(end <= len(before) for _, end in spans)
        last = len(ids) - sum(start >= len(before) + len(content) for start, _ in spans)
        if first >= last:
            raise UsageError(f"the message {content!r} has no token of its own; give some text")
        control = next((token for token in ids[first:last] if token in self.special_ids), None)
        if control is not None:
            raise UsageError(
                f"the message holds the control token {self.decode([control])!r}, which ends or begins a turn; "
                "take it out"
            )
        if self.doubled_start(ids):
            raise UsageError(
                f"the chat template of {self.name} puts its BOS twice in front; correct the template"
            )
        return ids, (first, last)

    def frame(self, *, system: str | None = None, thinking: bool | None = None) -> tuple[str, str]:
        """What the chat template puts before and after a user's message."""
        before, _, after = self.render(conversation(_MARK, system), thinking=thinking).partition(_MARK)
        return before, after

    def chat_ids(
        self, content_ids: Sequence[int], *, system: str | None = None, thinking: bool | None = None
    ) -> tuple[list[int], tuple[int, int]]:
        """`chat` for a message that is given as ids and must keep them.

        Raises:
            UsageError: as `chat`, and if the template and the message together are encoded to other ids.
        """
        ids, (first, last) = self.chat(self.decode(content_ids), system=system, thinking=thinking)
        if ids[first:last] != list(content_ids):
            raise UsageError(
                f"the tokenizer of {self.name} reads the message differently inside its chat template; "
                "begin and end it with whole words"
            )
        return ids, (first, last)

    def render(self, messages: Sequence[dict[str, str]], *, thinking: bool | None = None) -> str:
        """A conversation as the text that the model reads, ready for the model's turn.

        Args:
            messages: of role and content.
            thinking: what templates read as `enable_thinking` (Qwen3) or `thinking` (DeepSeek-V3.1); by
                default each does as it does by default.

        Raises:
            UsageError: if there is no template, or it fails on these messages.
        """
        if self.template is None:
            raise UsageError(f"{self.name} has no chat template; use a completion prompt")
        given: dict[str, Any] = {"tools": None, "documents": None, **self.special}
        if thinking is not None:
            given |= {"enable_thinking": thinking, "thinking": thinking}
        try:
            return rendered(self._compiled, messages=messages, add_generation_prompt=True, **given)
        except Exception as error:  # a template is a program, and fails in any way that a program can
            raise UsageError(f"the chat template of {self.name} fails: {first_line(error)}") from None

    @cached_property
    def _compiled(self) -> Template:
        """The template, compiled once: that takes longer than to render a message."""
        return compiled(self.template or "")

    def words(self, *, capital: bool = False) -> Iterator[tuple[int, str]]:
        """Tokens that are a blank and a word of two letters or more, and survive inside a text, by id.

        Args:
            capital: words of a capital and small letters, instead of small letters alone.
        """
        return (
            (token, word) for token, word in self._words if (word.istitle() if capital else word.islower())
        )

    @cached_property
    def _words(self) -> list[tuple[int, str]]:
        """Tokens that are a blank and ASCII letters, and survive behind another token."""
        # Behind another token, as some tokenizers take the blank off at the beginning of a text.
        anchor = self.encode("a")
        lead = self.decode(anchor)
        # A piece is a mark for the blank (Ġ or ▁) and the letters; this only spares the rest a closer look.
        vocabulary = self.fast.get_vocab(with_added_tokens=False)
        letters = [(token, piece.lstrip("Ġ▁ ")) for piece, token in vocabulary.items()]
        looked = sorted(
            (token, word) for token, word in letters if len(word) > 1 and word.isascii() and word.isalpha()
        )
        texts = self.fast.decode_batch([[*anchor, token] for token, _ in looked], skip_special_tokens=False)
        found = [
            (token, text, word)
            for (token, word), text in zip(looked, texts, strict=True)
            if text == f"{lead} {word}"
        ]
        encoded = self.encode_many([text for _, text, _ in found])
        return [
            (token, word)
            for (token, _, word), ids in zip(found, encoded, strict=True)
            if ids == [*anchor, token]
        ]

    def vocabulary(self) -> RetrievalVocabulary:
        """Fillers, keys and values for synthetic records, from the commonest whole words.

        Raises:
            UsageError: if the tokenizer has too few.
        """
        ids = [token for token, _ in self.words()]
        if len(ids) < sum(WORDS):
            raise UsageError(
                f"the tokenizer of {self.name} has {len(ids)} whole lower-case words; {sum(WORDS)} are needed, "
                "so pass a vocabulary"
            )
        fillers, keys, values = np.split(ids[: sum(WORDS)], np.cumsum(WORDS)[:-1])
        return RetrievalVocabulary(
            fillers=tuple(fillers.tolist()), keys=tuple(keys.tolist()), values=tuple(values.tolist())
        )


@contextmanager
def _refused(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever the tokenizers library raises into one line.

    It raises plain exceptions, and its Rust code panics with one that is no `Exception`.
    """
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise
        raise UsageError(f"{what}: {first_line(error)}; {remedy}") from None


def _settings(file: Path) -> dict[str, Any]:
    """What tokenizer_config.json says; nothing without one."""
    settings = read_json(file) if file.is_file() else {}
    if not isinstance(settings, dict):
        raise BrokenRecordError(f"{file} holds no object; copy it again from the checkpoint")
    return settings


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """A template in a file of its own wins over one in tokenizer_config.json; of several the default one."""
    file, older = folder / "chat_template.jinja", folder / "chat_template.json"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BrokenRecordError(f"{file} cannot be read: {first_line(error)}; copy it again") from None
    template = (_settings(older) if older.is_file() else settings).get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
    if isinstance(template, dict):
        template = template.get("default")
    if template is not None and not isinstance(template, str):
        raise BrokenRecordError(
            f"the chat template in {folder} is {str(template)[:40]!r}; give a text, or a list of named texts"
        )
    return template


def _special(settings: dict[str, Any]) -> dict[str, str]:
    """The named special tokens, which a configuration gives as texts or as records with a text."""
    special = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token"):
        token = settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            special[name] = text
    return special
