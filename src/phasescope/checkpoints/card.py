"""The card beside a trained checkpoint: how it was made, on what, and what it recalls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, field_validator

from ..errors import BrokenRecordError
from ..files import read_json
from ..grid import WIDEST
from ..models.compression import Compression, as_saved
from ..records import Record, first_problem
from ..text.synthetic import RetrievalVocabulary

NAME = "card.json"


class Recall(Record):
    """What a checkpoint recalls under one protocol; fields that are not ours are kept as they are.

    Attributes:
        contexts: that it was asked.
        mean_accuracy: share of right answers.
        phase_sd, low, high: standard deviation of accuracy between phases, and its interval; null where it could
            not be estimated.
        folded_by: stride of the phases, in tokens.
        period: found in the accuracy, in tokens; null for none.
        phases: accuracy at each phase.
    """

    model_config = ConfigDict(extra="allow")

    mean_accuracy: float | None = Field(ge=0, le=1)
    phase_sd: float | None
    low: float | None = None
    high: float | None = None
    contexts: int | None = Field(default=None, ge=1)
    folded_by: int | None = Field(default=None, ge=1, le=WIDEST)
    period: float | None = Field(default=None, gt=0)
    phases: tuple[float | None, ...] = ()


class ModelCard(Record):
    """What a checkpoint's author says of it; fields that are not ours are kept as they are.

    Attributes:
        command: the command that trained it.
        seed: of its training.
        compression: how it compresses its KV cache, as in its config; null for full attention.
        kv_heads: KV heads of each layer.
        steps, tokens, minutes: of its training.
        loss, accuracy: at the end of training, on records.
        pairs: records in a context that it was trained on.
        vocabulary: which token ids are filler, keys and values; null for a model of text alone.
        measured: what it recalls, by protocol.
        text: what it was trained on and how it reads held-out text; null for a model of records alone.
    """

    model_config = ConfigDict(extra="allow")

    command: str | None = None
    seed: int | None = Field(default=None, ge=0)
    compression: Compression | None = None
    kv_heads: int | None = Field(default=None, ge=1, le=4096)
    steps: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    minutes: float | None = Field(default=None, ge=0)
    loss: float | None = None
    accuracy: float | None = Field(default=None, ge=0, le=1)
    pairs: int | None = Field(default=None, ge=1, le=1_000_000)
    vocabulary: RetrievalVocabulary | None = None
    measured: dict[str, Recall] = Field(default_factory=dict)
    text: dict[str, Any] | None = None

    @field_validator("compression", mode="before")
    @classmethod
    def _saved(cls, given: Any) -> Any:
        return as_saved(given)


def read_card(folder: Path) -> ModelCard | None:
    """The card in a checkpoint's folder; None where there is none.

    Raises:
        BrokenRecordError: if the file is no card.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        return ModelCard.model_validate(read_json(path))
    except ValidationError as error:
        problem = first_problem(error, "the card")
        raise BrokenRecordError(f"{path}: {problem}; copy the card again") from None
