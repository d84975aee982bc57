"""Experiments of many runs as functions: text in, the settings of every run by name out.

A recipe is one file and one line in `RECIPES`; `phasescope train --recipe small/w8s8` trains one of its rows.
"""

from __future__ import annotations

from collections.abc import Callable

from ..settings import Text, Training
from . import packed, paper, small

RECIPES: dict[str, Callable[[Text | None], dict[str, Training]]] = {
    "small": small.rows,
    "packed": packed.rows,
    "paper": paper.rows,
}
