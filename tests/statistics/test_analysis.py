"""All findings of one condition."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from phasescope.errors import UsageError
from phasescope.files import dump_json
from phasescope.statistics import analyse
from tests.statistics.planted import CLUSTERED, Design, flat, observe, plant, sine, slope, truth


def found_in(observations, **settings):
    """Findings with few draws, and the first of each name and outcome."""
    settings = {"stride": 8, "rng": np.random.default_rng(1), "draws": 199, **settings}
    findings = analyse(observations, **settings)
    return findings, {(f.name, f.outcome): f for f in reversed(findings)}


def test_a_sensitive_condition_is_described_in_full(rng):
    """Every finding is there once, within its interval, with period and size as planted."""
    curve = sine(8, 0.3)
    findings, found = found_in(observe(plant(curve, replace(CLUSTERED, questions=12), rng)))
    true = truth(curve, CLUSTERED)
    counts = Counter(f.name for f in findings if f.outcome == "accuracy")
    assert counts.pop("phase_rate") == 8
    assert counts.pop("residue_rate") == 24
    assert counts == dict.fromkeys(
        [
            "mean_accuracy",
            "worst_residue",
            "phase_sd",
            "split_half_gap",
            "raw_gap",
            "phase_test",
            "paired_test",
            "period",
            "smallest_detectable_effect",
            "depth",
            "steps",
            "inside_gap",
            "interaction",
        ],
        1,
    )
    assert {f.name for f in findings if f.outcome == "candidate_accuracy"} == {
        "mean_accuracy",
        "phase_sd",
        "worst_residue",
    }
    period = found["period", "accuracy"]
    assert (period.value, period.expected, period.p_value) == (8, 8, 0.005)
    assert found["period", "logprob"].value == 8
    assert found["phase_sd", "accuracy"].value == pytest.approx(np.std(true), abs=0.02)
    assert found["split_half_gap", "accuracy"].value == pytest.approx(np.ptp(true), abs=0.06)
    assert found["worst_residue", "accuracy"].residue % 8 in (4, 5, 6, 7)
    assert found["raw_gap", "accuracy"].value > found["raw_gap", "accuracy"].detail["null_95"]
    assert all((f.n_blocks, f.n_clusters) == (300, 25) for f in findings)
    for f in findings:
        if f.low is not None:
            assert f.low <= f.value <= f.high, f.name


def test_a_flat_condition_says_what_it_would_have_seen(rng):
    """No period, a phase SD whose interval holds 0, and the smallest effect in points."""
    observations = observe(plant(flat(8), CLUSTERED, rng))
    _, found = found_in(observations, stride=None, fold=8)
    period = found["period", "accuracy"]
    assert (period.value, period.expected) == (None, None)
    assert period.p_value > 0.05
    assert found["phase_sd", "accuracy"].low == 0
    smallest = found["smallest_detectable_effect", "accuracy"]
    assert 0 < smallest.value < 0.05
    assert smallest.detail["single_phase_drop"] == pytest.approx(smallest.value * 8 / np.sqrt(7))
    assert 100 * smallest.value < period.detail["smallest_detectable_effect"] < 5


def test_the_same_observations_and_seed_give_the_same_bytes(rng):
    """Also when the lines come in another order."""
    observations = observe(plant(slope(4, 0.2), Design(clusters=6, questions=3), rng))
    dumps = {
        dump_json([f.model_dump(mode="json") for f in found_in(lines)[0]])
        for lines in (observations, observations, observations[::-1])
    }
    assert len(dumps) == 1


@pytest.mark.parametrize("clusters", [1, 2, 3, 4])
def test_few_contexts_give_fewer_numbers_not_a_crash(rng, clusters):
    """Without clusters to compare there are no intervals; tests by permutation remain."""
    loud = Design(clusters=clusters, questions=24, layout_sd=0, block_sd=0)
    _, found = found_in(observe(plant(slope(8, 0.6, 0.5), loud, rng)))
    assert found["phase_test", "accuracy"].p_value < 0.05
    assert (found["phase_sd", "accuracy"].low is None) == (clusters == 1)
    assert (found["split_half_gap", "accuracy"].value is None) == (clusters < 4)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_scores_that_never_differ_are_flat_not_certain(rng, score):
    """All right or all wrong: p 1, no period, and intervals that are not empty."""
    table = plant(flat(8), Design(clusters=6), rng)
    table.outcomes["accuracy"][:] = score
    _, found = found_in(observe(table))
    assert found["mean_accuracy", "accuracy"].value == score
    assert found["mean_accuracy", "accuracy"].high > found["mean_accuracy", "accuracy"].low
    assert found["phase_test", "accuracy"].p_value == 1
    assert found["period", "accuracy"].value is None
    assert found["phase_sd", "accuracy"].high > 0
    assert found["worst_residue", "accuracy"].high > found["worst_residue", "accuracy"].low
    assert found["smallest_detectable_effect", "accuracy"].value > 0


def test_dropped_blocks_are_counted(rng):
    """A lost trial takes its block along, and the mean says how many blocks are missing."""
    observations = observe(plant(slope(8, 0.2), Design(clusters=5), rng))
    findings, found = found_in(observations[1:])
    assert found["mean_accuracy", "accuracy"].detail["dropped_blocks"] == 1
    assert all(f.n_blocks == 39 for f in findings)


def test_the_models_own_stride_is_always_a_candidate(rng):
    """Stride 20 is tested where 40 layouts allow it, and otherwise named as not testable."""
    for layouts, listed in ((40, "tested"), (24, "not_testable")):
        table = plant(slope(20, 0.2), Design(clusters=5, layouts=layouts, questions=2), rng)
        _, found = found_in(observe(table), stride=20)
        assert 20 in found["period", "accuracy"].detail[listed]


def test_a_stride_far_beyond_the_layouts_gets_no_phase_sd(rng):
    """128 phases of which a block sees 24, from two far starts: some are never compared, and no SD is claimed."""
    table = plant(flat(8), Design(clusters=4, questions=1), rng)
    table.source_CLQ[:] = 64 * (np.arange(4)[:, None, None] % 2) + np.arange(24)[None, :, None]
    findings, found = found_in(observe(table), stride=128)
    for name in ("phase_sd", "split_half_gap", "raw_gap", "smallest_detectable_effect"):
        assert (found[name, "accuracy"].value, found[name, "accuracy"].low) == (None, None)
    assert 128 in found["period", "accuracy"].detail["not_testable"]
    assert [f.name for f in findings].count("phase_rate") == 2 * 48  # accuracy and log-probability


@pytest.mark.parametrize("settings", [{"stride": None}, {"stride": 1}, {"fold": 1}])
def test_strides_below_two_and_missing_folds_are_refused(rng, settings):
    """One line says what is allowed."""
    observations = observe(plant(flat(4), Design(clusters=2, questions=1), rng))
    with pytest.raises(UsageError, match="at least 2"):
        found_in(observations, **settings)
