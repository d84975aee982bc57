"""An audit in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[int, int, int, float, int]
"""Stride, visited phases, phases at which a model may be blind, largest hidden loss, samples."""
SHOWN = 3
"""Strides that the sentence names at most."""


def verdict(
    rows: Sequence[Row],
    chosen: Sequence[int] | None,
    bar: float,
    scores: str = "",
) -> str:
    """What a benchmark visits, and what it would let pass.

    Of the strides that the user names every one is spoken of, up to three; of the usual ones the smallest
    with a phase that is never visited, or else the smallest at which a model may be blind somewhere.

    Args:
        rows: one per stride, by stride.
        chosen: strides that the user named; None for the usual ones.
        bar: accuracy from which the benchmark counts as passed.
        scores: what the scores say; empty where there are none.
    """
    named = [row for row in rows if chosen and row[0] in chosen] or [_worst(rows)]
    # Those with most to hide come first.
    named = sorted(named, key=lambda row: (row[1] == row[0], -row[2] / row[0]))[:SHOWN]
    words = "; ".join(_sentence(row, bar) for row in named)
    if not chosen and all(visited == stride for stride, visited, *_ in rows):
        stride = named[0][0]
        words = f"visits every phase at all {len(rows)} strides; at stride {stride} {_would(named[0], bar)}"
    return f"{words}; {scores}" if scores else words


def _worst(rows: Sequence[Row]) -> Row:
    # More phases than samples says nothing about the benchmark's layout.
    fair = [row for row in rows if row[4] >= row[0]] or list(rows)
    unvisited = [row for row in fair if row[1] < row[0]]
    blind = [row for row in fair if row[2]]
    return unvisited[0] if unvisited else blind[0] if blind else max(fair, key=lambda row: row[3])


def _sentence(row: Row, bar: float) -> str:
    stride, visited, *_ = row
    return f"visits {visited} of {stride} phases at stride {stride}: {_would(row, bar)}"


def _would(row: Row, bar: float) -> str:
    _, _, blind, hidden, _ = row
    if blind:
        return f"a model blind at {blind} phase{'s' * (blind > 1)} would pass"
    return (
        f"a model that loses {100 * hidden:.0f} points at one phase would pass the bar of {100 * bar:.0f} %"
    )
