"""What the runner asks of whoever answers trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..records import Reply, Trial
from ..synthetic import RetrievalVocabulary


class Backend(Protocol):
    """Answers trials. The same trials, asked in the same batch, get the same replies in every process.

    Attributes:
        name: what a report calls it.
        tokens: prompt tokens that it has read so far, each shared prefix once.
    """

    name: str
    tokens: int

    def vocabulary(self) -> RetrievalVocabulary:
        """The ids from which a protocol may build prompts."""
        ...

    def answer(self, trials: Sequence[Trial]) -> list[Reply]:
        """One reply per trial, in the order of the trials."""
        ...

    def describe(self) -> dict[str, Any]:
        """Facts for the run's description; a resumed run must find the same.

        At least `backend` (its catalog name), `model`, and `grids`: the window grids of the model's KV
        cache as objects of width, stride and shift; empty for a model without a grid, null where unknown.
        """
        ...
