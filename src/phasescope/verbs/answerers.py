"""Who answers an experiment: a checkpoint on this machine, or a model behind a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backends import Backend, BackendSpec
from ..backends.openai.backend import OpenAIBackend
from ..catalog import BACKENDS
from ..checkpoints.resolve import LONGEST_PROMPT, ROOM, Checkpoint, resolve
from ..errors import UsageError
from ..text.synthetic import RetrievalVocabulary
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


def answerers_of(
    models: Any,
    *,
    tokenizer: str | Path | None = None,
    vocabulary: RetrievalVocabulary | None = None,
    name: str | None = None,
    control: bool = False,
    base_url: str | None = None,
    **loading: Any,
) -> list[Answerer]:
    """Whoever is meant by one or several models.

    Args:
        models: a name, a folder, a live model of `transformers`, an `Answerer`, or a list of these.
        tokenizer: a folder, for all of them.
        vocabulary: ids of synthetic prompts, for a live model; else the commonest words of its tokenizer.
        name: what a report calls a live model; by default the type of its config.
        control: whether they have no grid by the user's word.
        base_url: where a server is; `models` are then its models.
        **loading: arguments of `TransformersBackend.load`, or of `OpenAIBackend` with `base_url`.

    Raises:
        UsageError: for a model that is not there, or that nothing can be asked of.
    """
    several = models if isinstance(models, list | tuple) else [models]
    own = None if tokenizer is None else Path(tokenizer)
    if base_url is not None:
        return served(base_url, several, tokenizer=own, **({"grids": []} if control else {}), **loading)
    found: list[Answerer] = []
    for model in several:
        if isinstance(model, Answerer):
            found.append(model)
        elif isinstance(model, str | Path):
            found += local([str(model)], loading=loading, tokenizer=own, control=control)
        else:
            found.append(_live(model, own, vocabulary, name, control))
    return found


def _live(
    model: Any,
    tokenizer: Path | None,
    vocabulary: RetrievalVocabulary | None,
    name: str | None,
    control: bool,
) -> Answerer:
    """A model that is loaded already."""
    if not hasattr(model, "config"):
        raise UsageError(
            f"{type(model).__name__} is no model; give a name, a folder, or a causal language model of transformers"
        )
    if vocabulary is None and tokenizer is None:
        raise UsageError("a live model needs the ids of its prompts; give tokenizer=FOLDER or vocabulary=")
    ids = vocabulary or Tokenizer.load(tokenizer or Path()).vocabulary()
    label = name or str(model.config.model_type)
    backend: Backend = BACKENDS.load("transformers")(
        model, ids, name=label, tokenizer=tokenizer, **({"grids": []} if control else {})
    )
    return Answerer(label, backend, None, tokenizer)
