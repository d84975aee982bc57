"""What was planned and could not be observed: how much of each condition, why, and whether it hit some layouts more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..statistics.conditions import Condition
from .words import plain

HEAVY = 0.5
"""Share of a layout's prompts whose loss is named."""


def warnings(conditions: Sequence[Condition]) -> Iterator[str]:
    """One sentence per condition that lost prompts, with the layouts that lost most of theirs.

    Phases are compared within complete blocks, so a layout that is lost whole leaves the design without
    a word: all blocks are then complete without it.
    """
    for condition in conditions:
        if not condition.dropped:
            continue
        lost, planned = len(condition.dropped), len(condition.dropped) + len(condition.observations)
        heavy = list(_heavy_layouts(condition))
        unbalanced = f" The layouts are no longer balanced: {', '.join(heavy)}." if heavy else ""
        share = f"{plain(condition.name)} lost {lost:,} of {planned:,} prompts"
        yield f"Dropped: {share}: {condition.drop_reasons}.{unbalanced}"


def rows(conditions: Sequence[Condition]) -> list[tuple[str, ...]]:
    """Condition, reason, prompts, and in how many layouts, the commonest reason of each condition first."""
    found: list[tuple[str, ...]] = []
    for condition in conditions:
        for reason, count in Counter(line.dropped for line in condition.dropped).most_common():
            layouts = {line.layout for line in condition.dropped if line.dropped == reason}
            found.append((plain(condition.name, 200), plain(reason, 200), f"{count:,}", f"{len(layouts):,}"))
    return found


def _heavy_layouts(condition: Condition) -> Iterator[str]:
    lost = Counter(line.layout for line in condition.dropped)
    kept = Counter(condition.observations.integers("layout").tolist())
    for layout, count in sorted(lost.items()):
        if count > HEAVY * (count + kept[layout]):
            yield f"layout {layout} lost {count:,} of {count + kept[layout]:,}"
