"""Small trained checkpoints that ship with the package, each with a card that says how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import UnknownNameError
from ...files import read_json

HERE = Path(__file__).parent


def names(*, demo: bool = False) -> list[str]:
    """The shipped checkpoints, controls first.

    Args:
        demo: only those that the demo measures: trained on records alone, they share a vocabulary and so answer the
            same questions.
    """
    cards = {path.parent.name: read_json(path) for path in HERE.glob("*/card.json")}
    if demo:
        cards = {name: card for name, card in cards.items() if "text" not in card}
    return sorted(cards, key=lambda name: (cards[name]["compression"] is not None, name))


def folder(name: str) -> Path:
    """The folder of a shipped checkpoint, loadable by `AutoModelForCausalLM.from_pretrained`.

    Raises:
        UnknownNameError: if no checkpoint has that name.
    """
    if name not in names():
        raise UnknownNameError(f"unknown zoo model {name!r}; known: {', '.join(names())}")
    return HERE / name


def card(name: str) -> dict[str, Any]:
    """How a checkpoint was made and what it scored: command, seed, tokens, minutes, loss, accuracy, phase SD."""
    facts: dict[str, Any] = read_json(folder(name) / "card.json")
    return facts
