"""Correcting p-values that are compared with each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ..records import Finding
from .table import Floats

SIGNIFICANT = 0.05
"""The level of every test: a p below it, corrected where several are compared, counts."""
COMPARED = ("phase_test", "paired_test", "period")
"""Findings whose p-values are compared across conditions."""


def holm(p: Floats) -> Floats:
    """Holm's step-down p: max over j ≤ i of min(1, (m − j + 1) p(j)); guards against any false alarm.

    Source: Holm 1979, Scandinavian Journal of Statistics 6, 65–70.
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def correct(findings: Sequence[Finding]) -> list[Finding]:
    """Add p-values corrected over conditions to the tests' details: `p_holm` and `conditions_compared`.

    A family is one kind of test of one outcome over all conditions.
    """
    families: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, finding in enumerate(findings):
        if finding.name in COMPARED and finding.p_value is not None:
            families[finding.name, finding.outcome].append(index)
    corrected = list(findings)
    for family in families.values():
        adjusted = holm(np.array([findings[index].p_value for index in family], dtype=np.float64))
        for index, p in zip(family, adjusted.tolist(), strict=True):
            detail = {**findings[index].detail, "p_holm": p, "conditions_compared": len(family)}
            corrected[index] = findings[index].model_copy(update={"detail": detail})
    return corrected
