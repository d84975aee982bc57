"""Corrected p-values against statsmodels."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from phasescope.records import Finding
from phasescope.statistics import correct
from phasescope.statistics.verdict import holm


def theirs(p: np.ndarray, method: str) -> np.ndarray:
    """Corrected p-values of statsmodels, without the garbage collection that it runs at each call."""
    with mock.patch("gc.collect"):
        return multipletests(p, method=method)[1]


p_values = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(np.array)


@settings(deadline=None)  # a busy machine is no failure
@given(p_values)
def test_holm_equals_statsmodels(p):
    """For any p-values, ties included."""
    assert holm(p) == pytest.approx(theirs(p, "holm"))


def finding(condition: str, name: str, p: float | None, outcome: str = "accuracy") -> Finding:
    """A finding of no interest but its p."""
    return Finding(
        condition=condition,
        name=name,
        value=None,
        p_value=p,
        method="",
        n_blocks=1,
        n_clusters=1,
        outcome=outcome,
    )


def test_a_family_is_one_test_of_one_outcome_over_conditions():
    """Period and phase test are corrected apart, estimates not at all."""
    findings = [
        finding("a", "period", 0.01),
        finding("b", "period", 0.04),
        finding("a", "period", 0.04, "logprob"),
        finding("a", "phase_test", 0.03),
        finding("a", "phase_sd", 0.5),
        finding("c", "period", None),
    ]
    found = correct(findings)
    assert [f.detail.get("p_holm") for f in found] == [0.02, 0.04, 0.04, 0.03, None, None]
    assert [f.detail.get("conditions_compared") for f in found] == [2, 2, 1, 1, None, None]
