"""What a plan says a run will see is what simulated runs see."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from phasescope import UsageError
from phasescope.protocols import PrefixPadding
from phasescope.statistics.fold import identified_fold, phase_effects, within_blocks
from phasescope.statistics.permutation import permutation_p, quadratic_form
from phasescope.statistics.phase_effect import detectable, noise_of, power_at
from phasescope.statistics.power import Guess, planned_noise, planned_table
from phasescope.text.synthetic import RetrievalVocabulary
from tests.statistics.planted import CLUSTERED, Design, flat, plant, sine, truth

DESIGNS = {
    "clustered": CLUSTERED,
    "own layouts": dataclasses.replace(CLUSTERED, own_layouts=True),
    "few": Design(clusters=10, questions=3, layout_sd=1.0),
    "independent": Design(clusters=60, questions=1, cluster_sd=0.0, layout_sd=0.0),
}


def guess_of(design: Design, curve: np.ndarray) -> Guess:
    """A guess that is right."""
    return Guess(
        accuracy=float(truth(curve, design).mean()),
        block_sd=design.block_sd,
        cluster_sd=design.cluster_sd,
        layout_sd=design.layout_sd,
    )


@pytest.mark.parametrize("stride", [2, 4, 8])
@pytest.mark.parametrize("name", DESIGNS)
def test_the_planned_noise_is_that_of_simulated_runs(name: str, stride: int) -> None:
    """Trace and dimensions of the covariance of phase effects, within the error of 60 runs."""
    rng, design, curve = np.random.default_rng(5), DESIGNS[name], flat(stride, 0.8)
    found = []
    for _ in range(60):
        table = plant(curve, design, rng)
        fold = identified_fold(table, "source", stride)
        found.append((noise_of(phase_effects(table, "accuracy", fold)), table, fold))
    planned = planned_noise(found[0][1], found[0][2], guess_of(design, curve))
    traces = np.array([noise.trace for noise, _, _ in found])
    assert planned.trace == pytest.approx(traces.mean(), abs=4 * traces.std() / np.sqrt(60))
    assert planned.dimensions == pytest.approx(np.mean([n.dimensions for n, _, _ in found]), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clustered", "few"])
def test_the_planned_effect_is_found_as_often_as_promised(name: str) -> None:
    """A wave of the smallest detectable size in about 80 % of 80 runs of the phase test."""
    rng, design, stride = np.random.default_rng(3), DESIGNS[name], 8
    table = plant(flat(stride), design, rng)
    fold = identified_fold(table, "source", stride)
    noise = planned_noise(table, fold, guess_of(design, flat(stride)))
    smallest = detectable(noise, stride)
    assert power_at(smallest, noise, stride) == pytest.approx(0.8, abs=1e-6)
    size = float(0.1 * smallest / np.std(truth(sine(stride, 0.1), design)))
    hits = 0
    for _ in range(80):
        table = plant(sine(stride, size), design, rng)
        fold = identified_fold(table, "source", stride)
        values = within_blocks(table.outcomes["accuracy"], table, fold.trend_NK)
        sums = fold.permuted(values, rng, 200)
        hits += permutation_p(quadratic_form(sums, fold.inverse_SS)) <= 0.05
    assert 0.65 <= hits / 80 <= 0.93


def test_without_an_effect_the_power_is_the_level_and_it_grows_with_the_effect() -> None:
    """From 5 % up to certainty."""
    table = plant(flat(4), CLUSTERED, np.random.default_rng(0))
    noise = planned_noise(table, identified_fold(table, "source", 4), Guess())
    powers = [power_at(effect, noise, 4) for effect in (1e-9, 0.02, 0.05, 0.3)]
    assert powers[0] == pytest.approx(0.05, abs=1e-4)
    assert powers == sorted(powers)
    assert powers[-1] > 0.999


def test_the_variances_of_a_guess_are_those_of_drawn_answers() -> None:
    """By plain simulation of 4,000 contexts."""
    guess = Guess(accuracy=0.85, block_sd=0.9, cluster_sd=0.6, layout_sd=1.1)
    own, shared = guess.variances()
    rng, layouts, questions = np.random.default_rng(0), 12, 4
    from scipy.optimize import brentq
    from scipy.special import expit

    effects = (
        rng.normal(0, 0.9, (4000, 1, questions))
        + rng.normal(0, 0.6, (4000, 1, 1))
        + rng.normal(0, 1.1, (4000, layouts, 1))
    )
    middle = brentq(lambda m: expit(m + effects).mean() - 0.85, -9, 9)
    right = rng.random(effects.shape) < expit(middle + effects)
    within = right - right.mean(axis=1, keepdims=True)
    scale = layouts / (layouts - 1)
    product = (within.sum(axis=2) ** 2 - (within**2).sum(axis=2)).mean() / (questions * (questions - 1))
    assert own + shared == pytest.approx((within**2).mean() * scale, rel=0.02)
    assert shared == pytest.approx(product * scale, rel=0.1)


def test_a_planned_table_has_the_positions_of_its_trials() -> None:
    """Contexts, layouts, questions, and every source's residue once per block."""
    protocol = PrefixPadding(pairs=5, contexts=3, residues=6)
    batches = protocol.batches(RetrievalVocabulary.contiguous(9, 9, 9), np.random.default_rng(0))
    table = planned_table(trial for batch in batches for trial in batch)
    assert table.source_CLQ.shape == (3, 6, protocol.asked)
    assert all(len(np.unique(row % 6)) == 6 for row in table.source_CLQ.transpose(0, 2, 1).reshape(-1, 6))


@pytest.mark.parametrize(
    "wrong", [{"accuracy": 0.0}, {"accuracy": 1.0}, {"accuracy": float("nan")}, {"block_sd": -1}]
)
def test_impossible_guesses_are_refused(wrong: dict[str, float]) -> None:
    """One line."""
    with pytest.raises(UsageError):
        Guess(**wrong)
