"""Findings, shares and axes in words."""

from __future__ import annotations

from collections.abc import Sequence

from .. import wording
from ..errors import plain as plain
from ..records import Finding
from ..statistics.verdict import State, corrected, is_floor
from ..wording import listed as listed
from ..wording import number as number

STATES: dict[State, str] = {
    "sensitive": "phase-sensitive",
    "position": "dependent on position",
    "flat": "flat",
    "undecided": "undecided",
}


def tick_words(ticks: Sequence[float]) -> list[str]:
    """The numbers of an axis, with as many decimals as the finest of them needs, so that none is rounded."""
    digits = next((n for n in range(6) if all(abs(round(tick, n) - tick) < 1e-9 for tick in ticks)), 6)
    return [f"{round(tick, digits) + 0.0:,.{digits}f}".replace("-", "−") for tick in ticks]


def points(share: float) -> str:
    """A difference of shares in percentage points."""
    return number(100 * share)


def nats(value: float) -> str:
    """A difference of log-probabilities."""
    return number(value, 2)


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def p_words(p: float, finding: Finding | None = None) -> str:
    """A probability as papers write it; where no permutation came near, it is only known to be at most so large.

    Args:
        p: the probability, corrected or not.
        finding: the test that it is of, where the number of its permutations is known.
    """
    words = wording.p_words(p)
    if p >= 0.001 and finding is not None and is_floor(finding):
        words = f"p ≤ {p:.3f}, {finding.detail['draws']:,} draws"
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def p_of(test: Finding | None) -> str:
    """The corrected p of a test, a dash without one."""
    p = corrected(test)
    return "–" if p is None else p_words(p, test)


def interval_words(finding: Finding, unit: str = "points") -> str:
    """An estimate with its 95 % interval: accuracies in points, log-probabilities in their own unit."""
    show = nats if finding.outcome == "logprob" else points
    value = "–" if finding.value is None else show(finding.value)
    ends = (
        "" if finding.low is None or finding.high is None else f"[{show(finding.low)}, {show(finding.high)}]"
    )
    return "\N{NO-BREAK SPACE}".join(part for part in (value, unit, ends) if part)
