"""The period is found from the scores alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phasescope.statistics.period import CANDIDATES, find_period
from tests.statistics.planted import CLUSTERED, INDEPENDENT, Design, flat, one_bad_phase, plant, sine, slope


def search(curve, design, rng, outcome="accuracy", draws=499):
    """The period of one planted run among the usual candidates."""
    return find_period(plant(curve, design, rng), outcome, "source", CANDIDATES, rng, draws)


@pytest.mark.parametrize(
    ("curve", "design"),
    [
        (slope(2, 0.2), CLUSTERED),
        (slope(3, 0.3), CLUSTERED),
        (slope(4, 0.3), INDEPENDENT),
        (slope(5, 0.3), CLUSTERED),
        (slope(6, 0.3), replace(CLUSTERED, own_layouts=True)),
        (sine(8, 0.3), CLUSTERED),
        (one_bad_phase(8, 0.4), CLUSTERED),
        (sine(12, 0.4), CLUSTERED),
        (one_bad_phase(16, 0.5), Design(layouts=32, questions=6)),
    ],
    ids=lambda x: f"S{len(x)}" if isinstance(x, np.ndarray) else "",
)
def test_the_planted_stride_is_named_not_its_divisor_or_multiple(curve, design, rng):
    """Of six runs all, or all but one, name exactly the stride."""
    found = [search(curve, design, rng).stride for _ in range(6)]
    assert found.count(len(curve)) >= 5, found


def test_flat_scores_have_no_period_and_a_strong_depth_trend_none_either(rng):
    """Global p at or below 5 % in at most a few of 40 runs, though the trend spans many points."""
    for design in (CLUSTERED, replace(CLUSTERED, trend=0.03)):
        p = np.array([search(flat(8), design, rng, draws=99).p_value for _ in range(40)])
        assert (p <= 0.05).sum() <= 7  # 8 or more of 40 has probability 0.0007 at 5 %


def test_few_draws_do_not_make_the_search_louder(rng):
    """With 19 draws 1 in 20 flat runs has p ≤ 5 %; it is 3 in 20 if the observed draw is scaled by the others."""
    design = Design(clusters=8, layouts=12, questions=2)
    tables = [plant(flat(2), design, rng) for _ in range(400)]
    p = np.array([find_period(t, "logprob", "source", range(2, 7), rng, 19).p_value for t in tables])
    assert np.mean(p <= 0.05) <= 0.09  # 0.05 and nearly 4 standard errors


def test_a_trend_does_not_hide_the_period(rng):
    """The wave is found under a trend that moves the scores more than it does."""
    found = search(sine(8, 0.25), replace(CLUSTERED, trend=0.03), rng)
    assert found.stride == 8


def test_candidates_need_two_turns_in_the_layouts(rng):
    """Of 24 layouts the strides up to 12 are tested, the others are listed as not testable."""
    found = search(flat(4), CLUSTERED, rng, draws=19)
    assert found.tested == list(range(2, 13))
    assert found.not_testable == [13, 14, 15, 16, 32, 64, 128]
    nothing = find_period(plant(flat(4), CLUSTERED, rng), "accuracy", "source", [32], rng, 19)
    assert (nothing.stride, nothing.p_value, nothing.not_testable) == (None, None, [32])


def test_a_strong_effect_gets_the_smallest_p_that_the_draws_allow(rng):
    """So that correcting over conditions leaves it significant: 1/500 of 499 draws, whatever the candidates."""
    found = search(sine(8, 0.4), CLUSTERED, rng)
    assert found.p_value == pytest.approx(1 / 500)
    assert found.candidate_p[8] == pytest.approx(1 / 500)
    assert max(found.share, key=found.share.get) == 8


def test_one_bad_phase_in_sixteen_is_seen(rng):
    """The single-phase statistic has the power that a sum over sixteen phases lacks."""
    design = Design(layouts=32, questions=4)
    p = [search(one_bad_phase(16, 0.2), design, rng, draws=199).p_value for _ in range(8)]
    assert np.mean(np.array(p) <= 0.05) >= 0.6


def test_layouts_two_tokens_apart_do_not_break_the_search(rng):
    """Odd residues are never visited: stride 2 is not testable and 4 is found from two phases."""
    table = plant(slope(4, 0.0), CLUSTERED, rng)
    table.source_CLQ[:] = 2 * table.source_CLQ
    table.outcomes["accuracy"][:] = rng.random(table.source_CLQ.shape) < 0.5 + 0.1 * (table.source_CLQ % 4)
    found = find_period(table, "accuracy", "source", CANDIDATES, rng, 499)
    assert 2 in found.not_testable
    assert found.stride == 4
