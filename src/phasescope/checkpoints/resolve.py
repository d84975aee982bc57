"""Which checkpoint a model's name means: one of the zoo, the reference model, or a folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import UnknownNameError, UsageError, plain
from ..runs import ModelInfo
from ..text.tokens import Tokenizer
from . import smollm2, zoo
from .card import ModelCard, read_card
from .config import load_config, text_part

LONGEST_PROMPT = 131_072
"""Tokens of the longest prompt where a config does not say."""
ROOM = 32
"""Tokens of a context that are left for the answer."""


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk, before it is loaded.

    Attributes:
        name: what a report calls it.
        folder: where its config and weights lie.
    """

    name: str
    folder: Path

    @cached_property
    def card(self) -> ModelCard | None:
        """How it was made, where a card says so.

        Raises:
            BrokenRecordError: if its card.json is no card.
        """
        return read_card(self.folder)

    @cached_property
    def longest_prompt(self) -> int:
        """Tokens of the longest context that its config allows; the default where that does not say.

        Raises:
            UsageError: if it has no config.
            BrokenRecordError: if its config is no model's.
        """
        longest = text_part(load_config(self.folder)).get("max_position_embeddings")
        return longest if isinstance(longest, int) and longest > ROOM else LONGEST_PROMPT + ROOM

    def tokenizer(self) -> Tokenizer:
        """Its tokenizer.

        Raises:
            UsageError: if it reads token ids alone, or its tokenizer cannot be read.
        """
        if self.name in zoo.names() and self.folder == zoo.folder(self.name):
            raise UsageError(
                f"no tokenizer at {self.folder}: {self.name} was trained on token ids and reads no text; ask it "
                "`prefix`, `in_sequence` or prompts of ids"
            )
        return Tokenizer.load(self.folder)


def names() -> list[str]:
    """The models that are known by name."""
    return [*zoo.names(), smollm2.NAME]


def resolve(model: str) -> Checkpoint:
    """The checkpoint that a name or a folder means; a known name comes before a folder of that name.

    Raises:
        UnknownNameError: if it is neither.
        MissingExtraError: if the package that ships a known model is not installed.
    """
    if model in zoo.names():
        return Checkpoint(model, zoo.folder(model))
    if model == smollm2.NAME:
        return Checkpoint(model, smollm2.folder())
    try:
        folder = Path(model).resolve()
        there = folder.is_dir()
    except (OSError, ValueError):  # no path at all: too long, or with a NUL
        there = False
    if not there:
        problem = f"no model {plain(model, 80)!r}: neither a folder nor one of"
        raise UnknownNameError.among(problem, model, names())
    return Checkpoint(folder.name, folder)


def resolve_measured(model: ModelInfo, named: str | None = None) -> Checkpoint:
    """The checkpoint that a run was measured with: as named now, where the run says, or by its name.

    Args:
        model: the model as the run describes it.
        named: a name or a folder that comes first.

    Raises:
        UsageError: if it is at none of these places.
    """
    if named is not None:
        return resolve(named)
    if model.path and Path(model.path).is_dir():
        return Checkpoint(model.model, Path(model.path))
    if model.model in names():
        return resolve(model.model)
    raise UsageError(
        f"the run was measured with {model.model}, which is not at {model.path or 'a place that run.json tells'}; "
        "say where it is with --model"
    )
