"""Who answers an experiment: a checkpoint on this machine, or a model behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backends import Backend, BackendSpec
from ..backends.openai.backend import OpenAIBackend
from ..checkpoints.resolve import LONGEST_PROMPT, ROOM, Checkpoint, resolve
from ..errors import UsageError
from ..text.tokens import Tokenizer


@dataclass(frozen=True)
class Answerer:
    """A model that an experiment asks, before it is loaded.

    Attributes:
        name: what a report calls it.
        backend: the backend, or how to make it.
        checkpoint: its checkpoint, if that is on this machine.
        tokenizer: where its tokenizer is, if not beside the checkpoint.
    """

    name: str
    backend: Backend | BackendSpec
    checkpoint: Checkpoint | None = None
    tokenizer: Path | None = None

    def read_tokenizer(self) -> Tokenizer:
        """The tokenizer of its prompts.

        Raises:
            UsageError: if it is not known where that is, or it cannot be read.
        """
        if self.tokenizer is not None:
            return Tokenizer.load(self.tokenizer)
        if self.checkpoint is None:
            raise UsageError(
                f"real text for {self.name} needs its tokenizer; name its folder with --tokenizer"
            )
        return self.checkpoint.tokenizer()

    @property
    def pairs(self) -> int | None:
        """The records in a context that it was trained on; None where no card says so."""
        card = None if self.checkpoint is None else self.checkpoint.card
        return None if card is None else card.pairs

    @property
    def longest_prompt(self) -> int:
        """The longest prompt that its config allows; the default length and its room where none says."""
        return LONGEST_PROMPT + ROOM if self.checkpoint is None else self.checkpoint.longest_prompt


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
    for checkpoint in map(resolve, models):
        name, folder = checkpoint.name, str(checkpoint.folder)
        settings = {**(loading or {}), **known, "path": folder, "name": name}
        found.append(Answerer(name, BackendSpec("transformers", settings), checkpoint, tokenizer))
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
