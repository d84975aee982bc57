"""Small trained checkpoints that ship with the package, each with a card that says how it was made."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ...errors import UnknownNameError, UsageError
from ..card import NAME, ModelCard, read_card

HERE = Path(__file__).parent


def names(*, demo: bool = False) -> list[str]:
    """The shipped checkpoints, controls first.

    Args:
        demo: only those that the demo measures: trained on records alone, they share a vocabulary and so answer the
            same questions.
    """
    return [name for name in _folders() if not demo or card(name).text is None]


def folder(name: str) -> Path:
    """The folder of a shipped checkpoint, loadable by `AutoModelForCausalLM.from_pretrained`.

    Raises:
        UnknownNameError: if no checkpoint has that name.
    """
    if name not in _folders():
        raise UnknownNameError.among(f"unknown zoo model {name!r}; known:", name, names())
    return HERE / name


@cache
def card(name: str) -> ModelCard:
    """How a checkpoint was made and what it scored.

    Raises:
        UnknownNameError: if no checkpoint has that name.
        UsageError: if it has lost its card.
    """
    found = read_card(folder(name))
    if found is None:
        raise UsageError(f"{name} has lost its card.json; install phasescope again")
    return found


@cache
def _folders() -> tuple[str, ...]:
    """The shipped checkpoints, controls first."""
    folders = {path.parent.name: read_card(path.parent) for path in HERE.glob(f"*/{NAME}")}
    return tuple(
        sorted(folders, key=lambda name: ((own := folders[name]) and own.compression is not None, name))
    )
