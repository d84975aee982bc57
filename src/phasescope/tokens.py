"""A real tokenizer without torch: text to token ids and back, chat templates, and words of one token."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as FastTokenizer

from .errors import UsageError
from .records import read_json
from .synthetic import RetrievalVocabulary

WORDS = (64, 256, 256)  # fillers, keys and values of a vocabulary made from a tokenizer
TEMPLATE_DAY = datetime.date(2025, 1, 1)
"""What day a chat template is told it is, so that the same run has the same tokens tomorrow."""

_MARK = "\N{WHITE LARGE SQUARE}phasescope\N{WHITE LARGE SQUARE}"


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """The tokenizer of a checkpoint, read from its tokenizer.json; it needs neither torch nor transformers.

    Attributes:
        fast: the tokenizer of the `tokenizers` library.
        name: what a report calls it.
        template: the chat template as its checkpoint gives it; null for a base model.
        special: the texts of named special tokens, as a template reads them (`bos_token`, `eos_token`, …).
    """

    fast: FastTokenizer
    name: str
    template: str | None = None
    special: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a checkpoint's folder, or a tokenizer.json with what lies beside it.

        Raises:
            UsageError: if there is no readable tokenizer.json.
        """
        given = Path(path)
        file = given / "tokenizer.json" if given.is_dir() else given
        if not file.is_file():
            raise UsageError(f"no tokenizer at {path}: give a tokenizer.json, or a folder that holds one")
        try:
            fast = FastTokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more precise
            raise UsageError(f"{file} is no tokenizer.json that can be read: {error}") from None
        fast.no_truncation()
        fast.no_padding()
        config = file.with_name("tokenizer_config.json")
        settings: dict[str, Any] = read_json(config) if config.is_file() else {}
        return cls(fast, file.parent.name, _template(file.parent, settings), _special(settings))

    @property
    def size(self) -> int:
        """Number of ids, added tokens included; the largest id is one less."""
        return int(self.fast.get_vocab_size(with_added_tokens=True))

    @cached_property
    def start_ids(self) -> tuple[int, ...]:
        """What the tokenizer puts in front of every text when asked for special tokens (a BOS, or nothing)."""
        plain, marked = self.encode("a"), self.fast.encode("a", add_special_tokens=True).ids
        return tuple(marked[: marked.index(plain[0])]) if plain and plain[0] in marked else ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tokenizer and its template: the same digest gives the same ids."""
        content = self.fast.to_str() + json.dumps([self.template, self.special], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of control tokens, which never stand for plain text."""
        added = self.fast.get_added_tokens_decoder()
        return frozenset(index for index, token in added.items() if token.special)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any token that the tokenizer would add around it."""
        return list(self.fast.encode(text, add_special_tokens=False).ids)

    def encode_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text, and for each the characters it stands for (first, and one past the last)."""
        encoding = self.fast.encode(text, add_special_tokens=False)
        return list(encoding.ids), list(encoding.offsets)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts at once, on all cores."""
        return [
            list(encoding.ids) for encoding in self.fast.encode_batch_fast(texts, add_special_tokens=False)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens included."""
        return str(self.fast.decode(list(ids), skip_special_tokens=False))

    def survives(self, ids: Sequence[int]) -> bool:
        """Whether the ids' text is encoded to the same ids: what a text-only server needs."""
        return self.encode(self.decode(ids)) == list(ids)

    def chat(self, content: str, *, system: str | None = None) -> tuple[list[int], tuple[int, int]]:
        """One user message in the checkpoint's chat template, ready for the model's turn.

        Returns:
            the ids of the whole prompt, the template's own included, and the span of the tokens that hold
            any character of the message: first index, and one past the last.

        Raises:
            UsageError: if there is no template, it fails, or it changes the message.
        """
        messages = [{"role": "user", "content": content}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        before, _, after = self.render([*messages[:-1], {**messages[-1], "content": _MARK}]).partition(_MARK)
        if self.render(messages) != before + content + after:
            raise UsageError(
                f"the chat template of {self.name} changes the message; strip its ends of blanks"
            )
        ids, spans = self.encode_spans(before + content + after)
        first, last = len(before), len(before) + len(content)
        inside = [index for index, (start, end) in enumerate(spans) if end > first and start < last]
        if not inside:
            raise UsageError(f"the message {content!r} has no token of its own; give some text")
        return ids, (inside[0], inside[-1] + 1)

    def render(self, messages: Sequence[dict[str, str]]) -> str:
        """A conversation as the text that the model reads, ready for the model's turn.

        Raises:
            UsageError: if there is no template, or it fails on these messages.
        """
        if self.template is None:
            raise UsageError(f"{self.name} has no chat template; use a completion prompt")
        try:
            return str(self._compiled.render(messages=messages, add_generation_prompt=True, **self.special))
        except (TemplateError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"the chat template of {self.name} fails: {error}") from None

    @cached_property
    def _compiled(self) -> Template:
        """The template, compiled once: that takes longer than to render a message."""
        return _environment().from_string(self.template or "")

    def words(self) -> Iterator[tuple[int, str]]:
        """Tokens that are a blank and a lower-case word of two letters or more, and survive, by id."""
        for token in range(self.size):
            text = self.decode([token])
            word = text[1:]
            plain = text[:1] == " " and word.isascii() and word.isalpha() and word.islower() and len(word) > 1
            if plain and self.encode(text) == [token]:
                yield token, word

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


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    """A template in a file of its own wins over one in tokenizer_config.json; of several the default one."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
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


def _environment() -> ImmutableSandboxedEnvironment:
    """What chat templates expect of jinja, with no reach outside of the template."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = TEMPLATE_DAY.strftime
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    return environment
