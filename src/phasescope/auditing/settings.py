"""How a benchmark is audited; read without opening it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from ..settings import Settings, setting
from ..text.locate import Occurrence

WIDEST = 65_536
"""Largest stride that is looked at."""
COLUMNS, PLACES, PHASES = "Columns", "Positions", "Phases"
Stride = Annotated[int, Field(ge=2, le=WIDEST)]


class AuditSettings(Settings):
    """How a benchmark is audited: the options of `phasescope audit`."""

    format: str | None = setting(
        None,
        "csv, inspect, jsonl, lm-eval, needlehaystack, parquet, python or ruler; recognised if not given.",
    )
    prompt: str | None = setting(None, "Column of the prompt; dots lead inside.", panel=COLUMNS)
    needle: str | None = setting(None, "Column of the text that is asked for.", panel=COLUMNS)
    position: str | None = setting(None, "Column of the needle's token position.", panel=COLUMNS)
    score: str | None = setting(None, "Column of the score, 0 to 1.", panel=COLUMNS)
    tokenizer: Path | None = setting(
        None, "The model's tokenizer: a folder or a tokenizer.json.", panel=PLACES
    )
    find: str | None = setting(
        None,
        "Regular expression to locate instead of the needle; {needle} stands for it.",
        panel=PLACES,
    )
    occurrence: Occurrence = setting(
        "only", "Which of several occurrences counts; 'only' leaves such samples out.", panel=PLACES
    )
    chat: bool = setting(False, "Put prompts into the tokenizer's chat template.", panel=PLACES)
    bos: bool = setting(False, "Count the beginning-of-text token.", panel=PLACES)
    offset: int = setting(0, "Tokens to add to positions from a column.", panel=PLACES, ge=0)
    strides: tuple[Stride, ...] = setting(
        (),
        "A stride to look at; may be repeated. Usually 2-16, 32, 64, 128.",
        option="stride",
        panel=PHASES,
    )
    model: str | None = setting(None, "A checkpoint whose strides are looked at too.", panel=PHASES)
    bar: float = setting(
        0.9, "Mean accuracy from which the benchmark counts as passed.", panel=PHASES, gt=0, le=1
    )
    accuracy: float | None = setting(
        None,
        "Accuracy at healthy phases; by default the scores' mean, or the bar.",
        panel=PHASES,
        gt=0,
        le=1,
    )
    fix: Path | None = setting(
        None, "Write the benchmark with pads that even out the named strides here.", panel=PHASES
    )
    seed: int = setting(0, "Seed of every draw.", short="-s", ge=0)
    draws: int = setting(2000, "Permutations per test.", ge=20)
