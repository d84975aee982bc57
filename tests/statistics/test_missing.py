"""Answers that are missing by phase forbid the word flat."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from phasescope.observations import Observations
from phasescope.records import Dropped, Finding, Observation
from phasescope.reporting.sentences import sentence
from phasescope.statistics import analyse
from phasescope.statistics.missing import find_missing, phases_missing
from phasescope.statistics.verdict import judge
from tests.statistics.planted import CLUSTERED, flat, observe, one_bad_phase, plant, slope


def lost(one: Observation, *, placed: bool = True) -> Dropped:
    """A trial without its answer."""
    where = {"source_position": one.source_position, "query_position": one.query_position} if placed else {}
    return Dropped(
        condition=one.condition,
        trial=one.trial,
        cluster=one.cluster,
        block=one.block,
        layout=one.layout,
        dropped="timeout",
        **where,
    )


def judged(
    rows: list[Observation],
    gone: Callable[[Observation], bool],
    rng: np.random.Generator,
    *,
    placed: bool = True,
) -> list[Finding]:
    """All findings of a run that lost some answers."""
    kept = Observations(one for one in rows if not gone(one))
    dropped = [lost(one, placed=placed) for one in rows if gone(one)]
    missing = find_missing(kept, dropped, stride=8, coordinate="source", rng=rng, draws=99)
    return [*analyse(kept, stride=8, rng=rng, draws=99), missing]


def test_a_bad_phase_that_was_dropped_is_not_flat(rng):
    """A drop of 50 points at phase 7 whose trials are all gone: the phase is named, with bounds."""
    rows = observe(plant(one_bad_phase(8, 0.5, 0.85), CLUSTERED, rng))
    findings = judged(rows, lambda one: one.source_position % 8 == 7, rng)
    judgement = judge(findings)
    assert (judgement.state, judgement.missing) == ("undecided", True)
    assert phases_missing(findings[-1])[0] == 7
    assert "answers are missing at phase 7 of 8" in sentence(findings)
    bounds = findings[-1].detail["bounds"]
    assert bounds["wrong"] < bounds["right"]
    assert bounds["least_phase_sd"] < 0.04  # phase 7 may have been like the others


def test_wrong_answers_that_were_dropped_are_not_flat(rng):
    """As a server does that times out where a model rambles."""
    rows = observe(plant(one_bad_phase(8, 0.5, 0.85), CLUSTERED, rng))
    assert judge(judged(rows, lambda one: one.score == 0, rng)).state == "undecided"


def test_a_run_that_is_whole_stays_flat(rng):
    """Nothing is missing, and every phase was asked."""
    findings = judged(observe(plant(flat(8), CLUSTERED, np.random.default_rng(5))), lambda one: False, rng)
    assert findings[-1].value == 0
    assert findings[-1].p_value is None
    assert not judge(findings).missing


def test_a_few_answers_missing_at_random_change_nothing(rng):
    """One question of two hundred is broken."""
    rows = observe(plant(flat(8), CLUSTERED, rng))
    findings = judged(rows, lambda one: one.trial == rows[40].trial, rng)
    assert findings[-1].detail["broken_blocks"] == pytest.approx(1 / 200)
    assert not judge(findings).missing


def test_many_broken_questions_forbid_a_verdict(rng):
    """Version 0.1 did not log where a missing trial's source was; how many blocks it breaks is known all the same."""
    rows = observe(plant(flat(8), CLUSTERED, rng))
    findings = judged(rows, lambda one: one.block.endswith("k001") and one.layout == 3, rng, placed=False)
    assert findings[-1].p_value is None
    assert findings[-1].detail["broken_blocks"] == pytest.approx(1 / 8)
    assert judge(findings).missing


def test_a_phase_that_was_never_asked_is_named(rng):
    """No word of flat about a phase that nobody saw."""
    rows = [o for o in observe(plant(flat(8), CLUSTERED, rng)) if o.source_position % 8 != 2]
    findings = judged(rows, lambda one: False, rng)
    assert findings[-1].detail["unseen"] == [2]
    assert judge(findings).state == "undecided"
    assert "phase 2 of 8 was never asked" in sentence(findings)


def test_a_strong_effect_stands_whatever_is_missing(rng):
    """A slope of 60 points, with answers missing at random in every tenth trial: also with all wrong or all right."""
    rows = observe(plant(slope(8, 0.6), CLUSTERED, rng))
    gone = {one.trial for one in rows if one.block.endswith("k000") and rng.random() < 0.3}
    judgement = judge(judged(rows, lambda one: one.trial in gone, rng))
    assert (judgement.state, judgement.period) == ("sensitive", 8)
