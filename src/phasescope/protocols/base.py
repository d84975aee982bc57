"""What every protocol is: frozen settings that yield batches of trials and score the replies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from ..catalog import PROTOCOLS
from ..errors import UsageError
from ..records import Observation, Record, Reply, Trial, first_problem
from ..runs import ProtocolDescription
from ..text.synthetic import RetrievalVocabulary
from ..text.tokens import Tokenizer

Batch = tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a protocol will ask for, known before the first token is spent.

    Attributes:
        trials: questions over all contexts and layouts.
        prompt_tokens: prompt tokens of all trials together, as one prompt per trial would read them.
        prefix_tokens: the same when the questions of one layout share its context, read once.
    """

    trials: int
    prompt_tokens: int
    prefix_tokens: int


@dataclass(frozen=True)
class Protocol(ABC):
    """Settings that yield the same batches of trials for the same generator, and score replies.

    A batch is one cluster: one context in all its layouts with all its questions.

    Attributes:
        name: its name in the protocol catalog.
        moves: the coordinate that the layouts move, and that the analysis therefore folds.
        synthetic: whether prompts are made of a backend's vocabulary. Protocols of real text hold a
            `Tokenizer` among their settings instead, and are given no vocabulary.
    """

    name: ClassVar[str]
    synthetic: ClassVar[bool] = True
    moves: ClassVar[Literal["source", "query"]]
    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {}
    """The least and the most of settings that are whole numbers; a run.json can hold any number."""

    # Settings read from a file are checked against the fields' types; see `described_protocol`.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def __post_init__(self) -> None:
        """Check the whole numbers; one whose default is None may be None.

        Raises:
            UsageError: for a number outside its range.
        """
        for field in fields(self):
            least, most = self.ranges.get(field.name, (None, None))
            value = getattr(self, field.name)
            if least is None or most is None or (value is None and field.default is None):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise UsageError(
                    f"{field.name} is {value!r:.22}; give a whole number from {least} to {most:,}"
                )

    @abstractmethod
    def batch_sizes(self) -> list[int]:
        """Trials per batch, in order."""

    @abstractmethod
    def batches(self, vocabulary: RetrievalVocabulary | None, rng: np.random.Generator) -> Iterator[Batch]:
        """The trials, cluster by cluster.

        Raises:
            UsageError: if the vocabulary is too small for these settings.
        """

    @abstractmethod
    def plan(self) -> Plan:
        """What the batches will cost, without drawing them."""

    def observe(self, trial: Trial, reply: Reply, condition: str) -> Observation:
        """Score a reply: exact match over the whole vocabulary, and among the candidates alone.

        Among the candidates the right one must beat every other; a tie is not a right answer.
        """
        return Observation(
            **trial.facts(condition),
            prompt_tokens=reply.prompt_tokens,
            answer=reply.ids[0] if reply.ids else None,
            score=float(reply.ids == trial.answer_ids),
            candidate_score=_candidate_score(trial, reply),
            logprob=reply.answer_logprob,
        )

    def with_contexts(self, contexts: int) -> Self:
        """The same with so many contexts, where the protocol draws a number of them; else itself."""
        drawn = any(field.name == "contexts" for field in fields(self))
        return replace(self, **{"contexts": contexts}) if drawn else self

    def settings(self) -> dict[str, Any]:
        """The settings as JSON values; a tokenizer by its name and digest."""
        return {field.name: _as_json(getattr(self, field.name)) for field in fields(self)}

    def describe(self) -> dict[str, Any]:
        """Name, moved coordinate, settings and plan, for the run's description."""
        return {
            "name": self.name,
            "moves": self.moves,
            "settings": self.settings(),
            "plan": asdict(self.plan()),
        }


def described_protocol(described: ProtocolDescription, checkpoint: Path) -> Protocol:
    """The protocol of a run's condition, made again from what run.json says of it.

    Args:
        described: what run.json says.
        checkpoint: folder of the model that answered it, whose tokenizer a protocol of real text reads.

    Raises:
        UsageError: if it cannot be made from its settings, or the tokenizer is another one than the run's.
    """
    kind = PROTOCOLS.load(described.name)
    settings: dict[str, Any] = dict(described.settings)
    for name, value in settings.items():
        if isinstance(value, dict) and set(value) == {"name", "digest"}:
            settings[name] = _tokenizer(checkpoint, value["digest"])
    try:
        protocol: Protocol = TypeAdapter(kind).validate_python(settings)
    except ValidationError as error:
        what = first_problem(error, "its settings")
    except (TypeError, NameError) as error:  # its annotations cannot be resolved, or its own check failed
        what = str(error)
    else:
        return protocol
    raise UsageError(f"protocol {described.name} cannot be made again from run.json: {what}")


def _tokenizer(checkpoint: Path, digest: JsonValue) -> Tokenizer:
    tokenizer = Tokenizer.load(checkpoint)
    if tokenizer.digest != digest:
        raise UsageError(f"{checkpoint} has another tokenizer than the run's protocol was measured with")
    return tokenizer


def _as_json(value: Any) -> Any:
    if isinstance(value, Tokenizer):
        return {"name": value.name, "digest": value.digest}
    return value.model_dump(mode="json") if isinstance(value, Record) else value


def _candidate_score(trial: Trial, reply: Reply) -> float | None:
    if reply.candidate_logprobs is None or not trial.candidate_ids:
        return None
    right = trial.candidate_ids.index(trial.answer_ids[0])
    logprob = reply.candidate_logprobs
    return float(logprob[right] > max((*logprob[:right], *logprob[right + 1 :]), default=-np.inf))
