"""Compare runs with a baseline, trial by trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import UsageError, plain
from ..statistics.comparison import Comparison, compare_conditions, matched
from ..statistics.conditions import read_conditions
from ..statistics.intervals import SIGNIFICANT, Estimate
from ..statistics.verdict import holm
from ..wording import columns, number, p_words

HEAD = ("Condition", "Mean", "Change", "p", "Phase SD before", "after", "curves differ")


@dataclass(frozen=True)
class Compared:
    """Every condition of some runs beside its counterpart in a baseline.

    Attributes:
        pairs: in the order of the runs; their p-values are corrected over all pairs (Holm).
    """

    pairs: tuple[Comparison, ...]

    @property
    def worse(self) -> list[Comparison]:
        """Those that recall less, or whose phases differ more, than chance would show."""
        return [one for one in self.pairs if _fell(one) or _wider(one)]

    def above(self, phase_sd: float) -> list[Comparison]:
        """Those whose phase SD is above a limit, with the whole of its interval.

        Args:
            phase_sd: the limit, in points.
        """
        return [one for one in self.pairs if (one.spread_after.low or 0.0) > phase_sd / 100]

    @property
    def text(self) -> str:
        """A table, and a sentence for each pair that changed."""
        rows = [
            (
                plain(one.after),
                f"{100 * one.mean_before:.1f} → {100 * one.mean_after:.1f} %",
                _points(one.change),
                p_words(one.change_p),
                _points(one.spread_before),
                _points(one.spread_after),
                p_words(one.curves_p),
            )
            for one in self.pairs
        ]
        said = [f"{plain(one.after)}: {_change(one)}." for one in self.pairs]
        return "\n".join([*columns([HEAD, *rows], left=True), "", *said])

    def __repr__(self) -> str:
        return f"Compared({len(self.pairs)} pairs, {len(self.worse)} worse)"


def compare(
    baseline: str | Path,
    runs: str | Path | Sequence[str | Path],
    *,
    seed: int = 0,
    draws: int = 2000,
    reading: Callable[[int, int], None] = lambda done, total: None,
) -> Compared:
    """Hold runs against a baseline: the same trials, answered by another model, engine or version.

        ps.compare("runs/before", "runs/after").worse

    Args:
        baseline: a run folder.
        runs: other run folders: one, or a list.
        seed: of the permutations.
        draws: permutations per test.
        reading: told how many trials are read, and of how many.

    Raises:
        UsageError: if a folder holds no run, or no condition was asked the same trials.
        BrokenRecordError: if a file of a run is damaged.
    """
    several = [runs] if isinstance(runs, str | Path) else list(runs)
    if not several:
        raise UsageError("nothing to compare with the baseline; name at least one further run")
    before, _ = read_conditions([Path(baseline)], reading)
    found = []
    for run in several:
        after, _ = read_conditions([Path(run)], reading)
        for pair in matched(before, after):
            rng = np.random.default_rng([seed, *pair[1].name.encode()])
            found.append(compare_conditions(*pair, rng, draws))
    for name in ("change_p", "curves_p"):
        adjusted = holm(np.array([getattr(one, name) for one in found])).tolist()
        found = [replace(one, **{name: p}) for one, p in zip(found, adjusted, strict=True)]
    return Compared(tuple(found))


def _fell(one: Comparison) -> bool:
    return one.change_p < SIGNIFICANT and (one.change.value or 0.0) < 0


def _wider(one: Comparison) -> bool:
    return one.curves_p < SIGNIFICANT and (one.spread_after.value or 0.0) > (one.spread_before.value or 0.0)


def _change(one: Comparison) -> str:
    parts = []
    if one.change_p < SIGNIFICANT and one.change.value:
        rose = "falls" if one.change.value < 0 else "rises"
        parts.append(f"mean recall {rose} by {number(100 * abs(one.change.value))} points")
    if one.curves_p < SIGNIFICANT:
        parts.append(f"phases differ {'more' if _wider(one) else 'less'} than before, modulo {one.stride}")
    return " and ".join(parts) or f"no change is seen in {one.trials:,} trials"


def _points(estimate: Estimate) -> str:
    if estimate.value is None:
        return "–"
    ends = "" if estimate.low is None else f" [{100 * estimate.low:.1f}, {100 * (estimate.high or 0.0):.1f}]"
    return f"{100 * estimate.value:+.1f}{ends}".replace("+", "")
