"""RULER's task files, and the files of predictions that its `call_api` writes from them."""

from __future__ import annotations

from ..samples import ABSENT, Columns, Sample, at_path, position_of, with_path
from .base import Pad, Record, Row
from .jsonl import JsonLines

LENGTHS = ("length", "length_w_model_temp")


class Ruler(JsonLines):
    """RULER: `input`, `outputs`, `token_position_answer`, `length`, and `answer_prefix` in newer versions.

    The needle is the first right answer. RULER counts `token_position_answer` up to the answer in `input`,
    without a chat template, by the tokenizer that the file was made for. A file of predictions has no
    scores; they are computed from `pred` as RULER does: the share of `outputs` that it contains, in any
    letter case.

    Source: arXiv 2404.06654.
    """

    columns = Columns(
        prompt=("input",),
        needle=("outputs",),
        position=("token_position_answer",),
        score=("score",),
    )
    note = "RULER counts its positions in `input` alone, without chat template and beginning-of-text token."

    def fits(self, source: str, first: Record | None) -> bool:
        """By its two columns."""
        return first is not None and {"input", "outputs"} <= first.keys()

    def samples(self, row: Row, columns: Columns) -> list[Sample]:
        """One sample, whose prompt ends with the answer's prefix where there is one."""
        (sample,) = super().samples(row, columns)
        prefix = row.record.get("answer_prefix")
        if columns.prompt == ("input",) and isinstance(prefix, str) and isinstance(sample.prompt, str):
            sample = sample._replace(prompt=sample.prompt + prefix)
        if not columns.score:
            sample = sample._replace(score=_matched(row.record))
        return [sample]

    def padded(self, record: Record, columns: Columns, pad: Pad) -> Record:
        """Lengths grow by the pad; a prediction goes the way of a score."""
        record = super().padded(record, columns, pad)
        for name in LENGTHS:
            if at_path(record, name) not in (ABSENT, None):
                before = position_of(record[name], "a record", name) or 0
                record = with_path(record, name, before + pad.tokens)
        return {name: None if name == "pred" else value for name, value in record.items()}


def _matched(record: Record) -> float | None:
    """Share of the right answers that the prediction contains; None without a prediction."""
    prediction, answers = record.get("pred"), record.get("outputs")
    if not isinstance(prediction, str) or not isinstance(answers, list) or not answers:
        return None
    return sum(str(answer).lower() in prediction.lower() for answer in answers) / len(answers)
