"""What was planned and could not be observed: how much of each arm, why, and whether it hit some layouts more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..running.runner import count_reasons
from ..statistics.conditions import Arm
from ..statistics.verdict import plain

COLUMNS = ("Arm", "Reason", "Prompts", "Layouts")
HEAVY = 0.5
"""Share of a layout's prompts whose loss is named."""


def warnings(arms: Sequence[Arm]) -> Iterator[str]:
    """One sentence per arm that lost prompts, with the layouts that lost most of theirs.

    Phases are compared within complete blocks, so a layout that is lost whole leaves the design without
    a word: all blocks are then complete without it.
    """
    for arm in arms:
        if not arm.dropped:
            continue
        planned = len(arm.dropped) + len(arm.observations)
        said = f"Dropped: {plain(arm.name)} lost {len(arm.dropped):,} of {planned:,} prompts: {reasons(arm)}."
        heavy = list(_heavy_layouts(arm))
        yield said + (f" The layouts are no longer balanced: {', '.join(heavy)}." if heavy else "")


def reasons(arm: Arm) -> str:
    """Why prompts of an arm were dropped, and how many for each reason."""
    return plain(count_reasons(line.dropped for line in arm.dropped), 300)


def rows(arms: Sequence[Arm]) -> list[tuple[str, ...]]:
    """Arm, reason, prompts, and in how many layouts, the commonest reason of each arm first."""
    found: list[tuple[str, ...]] = []
    for arm in arms:
        for reason, count in Counter(line.dropped for line in arm.dropped).most_common():
            layouts = {line.layout for line in arm.dropped if line.dropped == reason}
            found.append((plain(arm.name, 200), plain(reason, 200), f"{count:,}", f"{len(layouts):,}"))
    return found


def _heavy_layouts(arm: Arm) -> Iterator[str]:
    lost = Counter(line.layout for line in arm.dropped)
    kept = Counter(observation.layout for observation in arm.observations)
    for layout, count in sorted(lost.items()):
        if count > HEAVY * (count + kept[layout]):
            yield f"layout {layout} lost {count:,} of {count + kept[layout]:,}"
