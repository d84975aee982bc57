"""Sample logs of lm-evaluation-harness (`samples_TASK_….jsonl`, written with `--log_samples`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..samples import ABSENT, Columns, Message, Sample, score_of
from .base import Record, Row, conversation
from .jsonl import JsonLines


class LmEval(JsonLines):
    """One answered question a line: `doc`, `target`, `arguments`, `filtered_resps`, and a field per metric.

    The prompt is the first argument of the first request, which in versions 0.4 is
    `arguments.gen_args_0.arg_0` and before that `arguments[0][0]`; with a chat interface it is a
    conversation as JSON. A task with several filters writes each question once per filter: only the first
    filter is read. The score is the first metric of `metrics`, or of the fields themselves, that is a
    number from 0; the harness's RULER writes −1 for lengths that a question does not have.
    """

    columns = Columns(
        prompt=(
            "arguments.gen_args_0.arg_0",
            "arguments.0.0",
            "arguments.0.arg_0",
            "doc.input",
            "doc.prompt",
        ),
        needle=("doc.needle", "doc.outputs", "target", "doc.answer"),
        position=("doc.token_position_answer", "doc.position"),
    )
    fixable = False
    note = "lm-eval logs hold the prompts that were sent; positions are counted in them with the tokenizer given."

    def fits(self, source: str, first: Record | None) -> bool:
        """By its `doc` and what was asked or answered."""
        return first is not None and "doc" in first and bool({"arguments", "resps"} & first.keys())

    def rows(self, source: str, columns: Columns) -> Iterator[Row]:
        """The lines of the first filter."""
        first: Any = ABSENT
        for row in super().rows(source, columns):
            first = row.record.get("filter") if first is ABSENT else first
            if row.record.get("filter") == first:
                yield row

    def samples(self, row: Row, columns: Columns) -> list[Sample]:
        """One sample; a conversation is read message by message."""
        (sample,) = super().samples(row, columns)
        if isinstance(sample.prompt, str) and sample.prompt.startswith("[{"):
            sample = sample._replace(prompt=_messages(sample.prompt) or sample.prompt)
        if not columns.score:
            sample = sample._replace(score=_metric(row))
        return [sample]


def _metric(row: Row) -> float | None:
    """The first metric that is a number from 0."""
    listed = row.record.get("metrics")
    names = listed if isinstance(listed, list) else [name for name in row.record if name in METRICS]
    for name in map(str, names):
        value = row.record.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bool | int | float) and value >= 0:
            return score_of(value, row.where, name)
    return None


METRICS = ("exact_match", "acc", "contains", "string_match", "f1")
"""Fields that older logs, which list no metrics, are searched for."""


def _messages(text: str) -> tuple[Message, ...] | None:
    """A conversation from its JSON; None for any other text."""
    try:
        return conversation(json.loads(text))
    except ValueError:
        return None
