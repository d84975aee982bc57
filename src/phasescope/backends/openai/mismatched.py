"""Answers that were given to another request than their own, found by the ids that servers give to answers."""

from __future__ import annotations

from ...records import Trial
from .capabilities import Endpoint
from .client import UnusableError
from .replies import Answer

ANOTHER = "the answer to another request"


class MismatchedResponses:
    """Remembers which answers each trial received.

    Args:
        names: the ids of answers so far, with what each of them answered.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._received: dict[str, set[str]] = {}
        self._disputed: set[str] = set()

    def clear(self) -> None:
        """Forget what trials received."""
        self._received.clear()

    def begin(self, trial: Trial) -> None:
        """A trial is asked, or asked again."""
        self._received[trial.digest] = set()

    def refuse(self, endpoint: Endpoint, trial: Trial, answer: Answer) -> None:
        """Raise `UnusableError` for an answer that another trial had already, or will claim too."""
        if endpoint.unique and answer.name:
            self._received[trial.digest].add(answer.name)
            if self._names.setdefault(answer.name, trial.digest) != trial.digest:
                # Which of the two it was meant for, nobody knows: both are asked again.
                self._disputed.add(answer.name)
                self._received[trial.digest].remove(answer.name)
                raise UnusableError(ANOTHER)

    def doubtful(self, trial: Trial) -> bool:
        """Whether an answer that it was given has been given to another trial too."""
        return not self._received[trial.digest].isdisjoint(self._disputed)
