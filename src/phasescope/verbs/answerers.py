"""Who answers an experiment: a checkpoint on this machine, or a model behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backends import Backend, BackendSpec
from ..backends.openai.backend import OpenAIBackend
from ..checkpoints import smollm2 as natural
from ..checkpoints import zoo
from ..errors import BrokenRecordError, UsageError
from ..files import read_json
from ..text.tokens import Tokenizer

LONGEST_PROMPT = 131072
ROOM = 32  # tokens left for the answer


@dataclass(frozen=True)
class Answerer:
    """A model that an experiment asks, before it is loaded.

    Attributes:
        name: what a report calls it.
        backend: the backend, or how to make it.
        folder: its checkpoint's folder, on this machine.
        tokenizer: where its tokenizer is, if not in that folder.
    """

    name: str
    backend: Backend | BackendSpec
    folder: Path | None = None
    tokenizer: Path | None = None

    def read_tokenizer(self) -> Tokenizer:
        """The tokenizer of its prompts.

        Raises:
            UsageError: if it is not known where that is, or it cannot be read.
        """
        place = self.tokenizer or self.folder
        if place is None:
            raise UsageError(
                f"real text for {self.name} needs its tokenizer; name its folder with --tokenizer"
            )
        if place == self.folder and self.name in zoo.names():
            raise UsageError(
                f"no tokenizer at {place}: {self.name} was trained on token ids and reads no text; ask it `prefix`, "
                "`in_sequence` or prompts of ids"
            )
        return Tokenizer.load(place)

    def card(self) -> dict[str, Any]:
        """What its card says; empty without one."""
        path = None if self.folder is None else self.folder / "card.json"
        return dict(read_json(path)) if path is not None and path.exists() else {}

    def longest_prompt(self) -> int:
        """The longest prompt that its config allows; the default length and its room where none says."""
        if self.folder is None:
            return LONGEST_PROMPT + ROOM
        config = read_json(self.folder / "config.json")
        nested = config.get("text_config", config) if isinstance(config, dict) else config
        if not isinstance(nested, dict):
            raise BrokenRecordError(f"{self.folder / 'config.json'} holds no model's settings; copy it again")
        longest = nested.get("max_position_embeddings")
        return longest if isinstance(longest, int) and longest > ROOM else LONGEST_PROMPT + ROOM


def checkpoint(model: str) -> tuple[str, Path]:
    """A model's name and folder, from a zoo name, the natural model's name or a path.

    Raises:
        UsageError: if it is neither.
    """
    if model in zoo.names():
        return model, zoo.folder(model)
    if model == natural.NAME:
        return model, natural.folder()
    folder = Path(model)
    if not folder.is_dir():
        known = ", ".join([*zoo.names(), natural.NAME])
        raise UsageError(f"no model {model!r}: neither a folder nor one of the zoo: {known}")
    return folder.resolve().name, folder


def local(
    models: Sequence[str],
    *,
    loading: Mapping[str, Any] | None = None,
    tokenizer: Path | None = None,
    control: bool = False,
) -> list[Answerer]:
    """Checkpoints on this machine.

    Args:
        models: names or folders.
        loading: how they are loaded: arguments of `TransformersBackend.load`.
        tokenizer: a tokenizer for all of them; by default each one's own.
        control: whether they have no grid by the user's word, whatever their config says.

    Raises:
        UsageError: for a model that is not there.
    """
    known: dict[str, Any] = {"grids": []} if control else {}
    found = []
    for name, folder in map(checkpoint, models):
        settings = {**(loading or {}), **known, "path": str(folder.resolve()), "name": name}
        found.append(Answerer(name, BackendSpec("transformers", settings), folder, tokenizer))
    return found


def served(
    base_url: str, models: Sequence[str], *, tokenizer: Path | None = None, **settings: Any
) -> list[Answerer]:
    """Models behind an OpenAI-compatible server, which is probed.

    Args:
        base_url: where the server is.
        models: their names there; none for the only one that it has.
        tokenizer: folder of their tokenizer.
        **settings: further settings of `OpenAIBackend`.

    Raises:
        UsageError: if the server cannot be asked so.
        ServerError: if it is not reached.
    """
    own = None if tokenizer is None else Tokenizer.load(tokenizer)
    names: Sequence[str | None] = models or (None,)
    backends = [OpenAIBackend(base_url, name, own, **settings) for name in names]
    return [Answerer(backend.name, backend, None, tokenizer) for backend in backends]
