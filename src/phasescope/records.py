"""Facts that pass between the parts: trials, replies, observations and findings, and their files.

Positions are token indices into the ids that the model received. Phases are computed later, from a grid.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from .errors import UsageError

SCHEMA: Literal[1] = 1
TOKENS = 2**31
"""Positions and token ids are below it: no model reads prompts so long, and arrays hold them in 32 bits."""
Name = Annotated[str, Field(max_length=10_000)]
"""A name, a digest, a reason: text that is shown or compared."""
Index = Annotated[int, Field(ge=0, lt=TOKENS)]
"""A position in a prompt, a token id, or the number of a layout."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One question about one source, as token ids.

    Attributes:
        prompt_ids: everything the model receives.
        answer_ids: the right continuation.
        candidate_ids: single tokens among which a restricted choice is scored; the first token of the
            answer is one of them. Empty where the protocol has none.
        source_position: index in `prompt_ids` of the source's first token.
        block: trials of one block differ in nothing but position.
        cluster: trials of one cluster share a context (and so its noise).
        layout: which arrangement of padding this is within the cluster: the unit that is permuted.
        generate: tokens to continue by; by default as many as the answer has.
        content: where a chat template surrounds the user's message, its span in `prompt_ids`: first index,
            and one past the last. None for a plain prompt.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    candidate_ids: tuple[int, ...]
    source_position: int
    block: str
    cluster: str
    layout: int
    generate: int | None = None
    content: tuple[int, int] | None = None

    @property
    def new_tokens(self) -> int:
        """How many tokens to continue by."""
        return len(self.answer_ids) if self.generate is None else self.generate

    def facts(self, condition: str) -> dict[str, Any]:
        """What a log holds of every trial of a condition, answered or not."""
        return {
            "condition": condition,
            "trial": self.digest,
            "cluster": self.cluster,
            "block": self.block,
            "layout": self.layout,
            "source_position": self.source_position,
            "query_position": len(self.prompt_ids) - 1,
        }

    @property
    def digest(self) -> str:
        """A short hash of what is asked and what counts as right; it names the trial in a log."""
        facts = [self.prompt_ids, self.answer_ids, self.candidate_ids]
        # Appended only where set, so that the digests of plain trials are what they always were.
        facts += [(self.new_tokens,)] if self.generate is not None else []
        facts += [self.content] if self.content is not None else []
        content = hashlib.blake2b(digest_size=8)
        for ids in facts:
            content.update(np.asarray((len(ids), *ids), dtype="<i8").tobytes())
        return content.hexdigest()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a backend said to one trial.

    Attributes:
        ids: the greedy continuation, as many tokens as the trial asks for, fewer where the model stopped;
            empty where a server gives text alone.
        answer_logprob: natural log-probability of the right answer, summed over its tokens.
        candidate_logprobs: natural log-probability of each candidate, in the trial's order.
        prompt_tokens: how many prompt tokens the model says it read.
        text: the continuation as text, where the backend has a tokenizer or is given text.
        greedy_logprob: natural log-probability of the continuation's first token.
        margin: by how much that exceeds the runner-up's, in nats.
    """

    ids: tuple[int, ...]
    prompt_tokens: int
    answer_logprob: float | None = None
    candidate_logprobs: tuple[float, ...] | None = None
    text: str | None = None
    greedy_logprob: float | None = None
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class NoReply:
    """A trial that could not be asked as planned, or was answered unusably; it is counted, not scored.

    Attributes:
        reason: in few words, the same for the same kind of failure, as reasons are counted.
    """

    reason: str


class Record(BaseModel):
    """A frozen record that refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build a record from what a user gave.

        Raises:
            UsageError: in one line, naming the field, the value and what is wrong with it.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError(first_problem(error, cls.__name__)) from None

    @classmethod
    def checked_json(cls, content: str | bytes) -> Self:
        """The same from JSON, whose lists and objects become tuples and records.

        Raises:
            UsageError: as in `checked`.
        """
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise UsageError(first_problem(error, cls.__name__)) from None


def first_problem(error: ValidationError, whole: str) -> str:
    """The first thing that is wrong with a record, in one line: the field, its value, and what is allowed.

    Args:
        error: of pydantic.
        whole: what to call the record where its fields do not go together, or it cannot be read at all.
    """
    problem = error.errors(include_url=False, include_context=False)[0]
    message = " ".join(problem["msg"].removeprefix("Value error, ").split())[:1000]
    if not problem["loc"]:  # the input would be the whole record
        return f"{whole}: {message}"
    where = ".".join(map(str, problem["loc"]))[:200]
    if problem["type"] == "missing":
        return f"{where} is missing"
    given = repr(problem["input"])
    return f"{where} is {given if len(given) <= 200 else given[:200] + '…'}: {message}"


def bounded(value: JsonValue, most: float) -> JsonValue:
    """The value, if each number in it is at most so large; JSON itself allows any number of digits.

    Raises:
        ValueError: for a larger one.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, int | float) and not -most <= part <= most:
            raise ValueError(f"a number beyond ±{most:.3g} ({str(part)[:20]} …)")
    return value


Logprob = Annotated[float, Field(ge=-1e6, le=1)]
"""Nats; rounding may bring a certain answer above 0, and no model's is below: sums of squares stay finite."""


class Observation(Record):
    """One answered trial. Facts only: phase is computed later, from a WindowGrid.

    Attributes:
        v: version of this schema.
        condition: name of the condition (backend under protocol) that it belongs to.
        trial: digest of the trial.
        cluster, block, layout: as in `Trial`.
        source_position: index of the source's first token among the tokens that the model received.
        query_position: index of the last prompt token.
        prompt_tokens: tokens in the prompt.
        answer: first token of the model's continuation; null where a server gives text alone.
        text: the continuation as text, where a protocol scores or shows text.
        score: 1 for a right answer, 0 for a wrong one (over the whole vocabulary).
        candidate_score: the same when only the candidates may be chosen.
        logprob: natural log-probability of the right answer.
        rival_logprob: the same of the strongest rival, where a protocol names rivals.
    """

    v: Literal[1] = SCHEMA
    condition: Name = Field(validation_alias=AliasChoices("condition", "arm"))
    trial: Name
    cluster: Name
    block: Name
    layout: Index
    source_position: Index
    query_position: Index
    prompt_tokens: int = Field(ge=1, lt=TOKENS)
    answer: Index | None = None
    text: str | None = None
    score: float = Field(ge=0, le=1)
    candidate_score: float | None = Field(default=None, ge=0, le=1)
    logprob: Logprob | None = None
    rival_logprob: Logprob | None = None

    @property
    def margin(self) -> float | None:
        """Log-odds of the right answer against its strongest rival, in nats."""
        if self.logprob is None or self.rival_logprob is None:
            return None
        return self.logprob - self.rival_logprob


class Dropped(Record):
    """A planned trial without an observation: it stands in the log in the observation's place.

    Attributes:
        v: version of this schema.
        condition, trial, cluster, block, layout, source_position, query_position: as in `Observation`; version 0.1
            did not write the positions.
        dropped: the reason.
    """

    v: Literal[1] = SCHEMA
    condition: Name = Field(validation_alias=AliasChoices("condition", "arm"))
    trial: Name
    cluster: Name
    block: Name
    layout: Index
    source_position: Index | None = None
    query_position: Index | None = None
    dropped: Name


def count_reasons(dropped: Iterable[str]) -> str:
    """Reasons with how often they occur, the commonest first."""
    return ", ".join(f"{reason} ({count:,})" for reason, count in Counter(dropped).most_common())


class Finding(Record):
    """One estimate: a value with interval, p, method, and the blocks and clusters it rests on.

    Attributes:
        condition: the condition it speaks of.
        name: `mean_accuracy`, `phase_sd`, `split_half_gap`, `period`, …
        value: the estimate, in the outcome's units (accuracies and gaps are fractions); null for none.
        low, high: a 95 % interval.
        p_value: probability of so much under no phase effect, where the finding is a test.
        method: how it was computed, in words.
        outcome: `accuracy`, `candidate_accuracy`, `logprob`, or `margin`: log-probability less the rival's.
        coordinate: which position was folded, `source` or `query`.
        stride: the modulus of the fold.
        residue: the one residue or phase that the value speaks of.
        expected: for a period, the stride of the model's own grid; null for a model without one.
        detail: further numbers of the same computation.
    """

    condition: str = Field(validation_alias=AliasChoices("condition", "arm"))
    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    method: str
    n_blocks: int
    n_clusters: int
    outcome: Literal["accuracy", "candidate_accuracy", "logprob", "margin"] = "accuracy"
    coordinate: Literal["source", "query"] = "source"
    stride: int | None = None
    residue: int | None = None
    expected: int | None = None
    detail: dict[str, Any] = {}

    def __repr__(self) -> str:
        value = "none" if self.value is None else f"{self.value:.4g}"
        ends = "" if self.low is None or self.high is None else f" [{self.low:.4g}, {self.high:.4g}]"
        p = "" if self.p_value is None else f", p = {self.p_value:.3g}"
        where = "" if self.residue is None else f" at {self.residue} mod {self.stride}"
        return f"Finding({self.condition!r}, {self.name}{where} of {self.outcome}: {value}{ends}{p})"

    __str__ = __repr__
