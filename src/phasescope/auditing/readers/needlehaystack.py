"""Results of needlehaystack 2 (`niah run`): one JSON line per cell of length and depth."""

from __future__ import annotations

from typing import Any

from ...errors import UsageError
from ..samples import Columns, Sample, at_path, position_of, score_of, short
from .base import Record, Row
from .jsonl import JsonLines


class NeedleHaystack(JsonLines):
    """Result rows of schema 2: a `recipe` with `needle_placements`, a `score`, and no prompt.

    Each placement is a sample; a score is kept where there is a single one, as a score over several
    needles belongs to no phase. Rows with `status` other than ok have no score.
    """

    columns = Columns()
    fixable = False
    note = (
        "needlehaystack 2 counts positions with the tokenizer cl100k_base, whichever model it asks, and before "
        "any chat template: the phases are right for models with that tokenizer, up to a constant."
    )

    def fits(self, source: str, first: Record | None) -> bool:
        """By its recipe."""
        return first is not None and isinstance(at_path(first, "recipe.needle_placements"), list)

    def samples(self, row: Row, columns: Columns) -> list[Sample]:
        """One sample per needle."""
        placements: Any = at_path(row.record, "recipe.needle_placements")
        if not isinstance(placements, list) or not all(isinstance(p, dict) for p in placements):
            raise UsageError(
                f"{row.where}: recipe.needle_placements is {short(placements)}; a list of placements belongs there"
            )
        score = at_path(row.record, "score.value") if row.record.get("status", "ok") == "ok" else None
        known = isinstance(score, int | float | str) and len(placements) == 1
        name = "insertion_token_index"
        return [
            Sample(
                where=row.where,
                position=position_of(placement.get(name), row.where, name),
                score=score_of(score, row.where, "score.value") if known else None,
            )
            for placement in placements
        ]
