"""What the runner asks of whoever answers trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..records import NoReply, Reply, Trial
from ..text.synthetic import RetrievalVocabulary


class Backend(Protocol):
    """Answers trials. The same trials, asked in the same batch, get the same replies in every process.

    A backend that reads what the trials of one layout share once says so by an attribute `share_prefix` that is
    true; of any other a plan counts every prompt whole. One that answers several trials at a time may say how
    many, by an attribute `concurrency`.
    """

    @property
    def name(self) -> str:
        """What a report calls it."""
        ...

    @property
    def tokens(self) -> int:
        """Prompt tokens that it has read so far, each shared prefix once."""
        ...

    def vocabulary(self) -> RetrievalVocabulary:
        """The ids from which a synthetic protocol builds prompts; asked for by no other.

        Raises:
            UsageError: if there is none, with what to do.
        """
        ...

    def answer(self, trials: Sequence[Trial]) -> Sequence[Reply | NoReply]:
        """One reply per trial, in the order of the trials; a reason where there is none to be had."""
        ...

    def describe(self) -> dict[str, Any]:
        """Facts for the run's description; a resumed run must find the same.

        At least `backend` (its catalog name), `model`, and `grids`: the window grids of the model's KV
        cache as objects of width, stride and shift; empty for a model without a grid, null where unknown.
        """
        ...
