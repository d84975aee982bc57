"""What a padding sweep's observations say, against planted truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from phasescope import UsageError
from phasescope.records import Observation
from phasescope.statistics import analyse_sweep

LENGTHS = range(24, 40)
FAMILIES = ("line", "spaces", "comment")


def plant(
    rng,
    effect=lambda prompt, position: 0.0,
    *,
    prompts=1,
    lengths=LENGTHS,
    layout_sd=0.6,
    noise_sd=0.3,
    base=(5, 18, 31, 44, 57),
    memory=0.0,
    trend=0.0,
):
    """Margins in nats: the prompt's effect, a noise that its families share at a length, and their own."""
    observations = []
    for prompt in range(prompts):
        shared = rng.normal(0, layout_sd, len(lengths))
        for i in range(1, len(shared)):
            shared[i] = memory * shared[i - 1] + np.sqrt(1 - memory**2) * shared[i]
        for f, family in enumerate(FAMILIES):
            for i, length in enumerate(lengths):
                position = base[prompt] + length
                margin = (
                    effect(prompt, position) + shared[i] + rng.normal(0, noise_sd) + trend * length * (f + 1)
                )
                observations.append(
                    Observation(
                        condition="m",
                        trial=f"{prompt}-{family}-{length}",
                        cluster=f"p{prompt}",
                        block=f"p{prompt}/{family}",
                        layout=length,
                        source_position=position,
                        query_position=position + 50,
                        prompt_tokens=position + 51,
                        answer=8 if margin > 0 else 3,
                        text="8" if margin > 0 else "3",
                        score=float(margin > 0),
                        logprob=float(-np.logaddexp(0, -margin)),
                        rival_logprob=float(-np.logaddexp(0, margin)),
                    )
                )
    return observations


def square(prompt, position):
    """The code example: two residues of four are right."""
    return 1.5 if position % 4 >= 2 else -1.5


def period_of(findings, outcome="margin"):
    """The period finding."""
    return next(f for f in findings if f.name == "period" and f.outcome == outcome)


def advice_of(findings):
    """The advice finding."""
    return next(f for f in findings if f.name == "pads_to_add")


def false_alarms(runs, rng, draws=99, **design):
    """Share of planted runs whose global p is at most 5 %."""
    p = [
        period_of(analyse_sweep(plant(rng, **design), stride=None, rng=rng, draws=draws)).p_value
        for _ in range(runs)
    ]
    return float(np.mean(np.array(p) <= 0.05))


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        {},
        {"prompts": 3},
        {"trend": 0.1},
        {"effect": lambda prompt, position: 0.02 * (position - 40) ** 2, "prompts": 2},
        {"layout_sd": 2.0, "noise_sd": 0.1},
        {"memory": 0.8},
    ],
    ids=["one prompt", "three prompts", "family trends", "curved trend", "shared noise alone", "slow drift"],
)
def test_a_flat_sweep_is_called_periodic_no_more_often_than_it_says(design, rng):
    """Of 120 runs no more than binomial luck at 5 % allows, whatever families share."""
    assert false_alarms(120, rng, **design) <= stats.binom.isf(0.002, 120, 0.05) / 120


def test_families_as_independent_trials_would_cry_wolf(rng):
    """The reference of what is avoided: permuting each family by itself is loud when they share their noise."""
    from phasescope.statistics.period import CANDIDATES, find_period
    from phasescope.statistics.table import tabulate

    def p_of(observations):
        split = [o.model_copy(update={"cluster": o.block}) for o in observations]
        return find_period(tabulate(split), "margin", "source", CANDIDATES, rng, 99).p_value

    loud = np.mean([p_of(plant(rng, layout_sd=1.0, noise_sd=0.1)) <= 0.05 for _ in range(60)])
    assert loud > 0.2


def test_the_planted_period_is_found_and_its_safe_residues_named(rng):
    """Two of four residues: period 4, both named, three pads to add as measured from 24."""
    for _ in range(5):
        findings = analyse_sweep(
            plant(rng, square, layout_sd=0.2, noise_sd=0.2), stride=4, rng=rng, draws=499
        )
        assert period_of(findings).value == 4
        assert period_of(findings).p_value <= 0.02
        advice = advice_of(findings)
        assert advice.detail["safe"] == [1, 2]  # positions 5 + L with residue 2 and 3
        assert (advice.value, advice.detail["stride_from"]) == (25.0, "found")
        assert advice.detail["held_out"] == {"right": 24, "trials": 24}


def test_prompts_whose_phases_do_not_compare_are_still_found(rng):
    """Each prompt has its own phase; a common profile would cancel, a profile each does not."""

    def own(prompt, position):
        return 1.0 if (position - prompt) % 4 >= 2 else -1.0

    observations = plant(rng, own, prompts=4, base=(8, 8, 8, 8))
    found = period_of(analyse_sweep(observations, stride=None, rng=rng, draws=499))
    pooled = period_of(analyse_sweep(observations, stride=None, comparable=True, rng=rng, draws=499))
    assert found.value == 4
    assert found.p_value < pooled.p_value


def test_flips_are_counted_with_their_lengths(rng):
    """Every block says where its top token changed and what it was."""
    findings = analyse_sweep(plant(rng, square, layout_sd=0, noise_sd=0), stride=None, rng=rng, draws=99)
    flips = [f for f in findings if f.name == "flips"]
    assert [f.detail["family"] for f in flips] == list(FAMILIES)
    assert all(f.value == 8 for f in flips)
    assert flips[0].detail["at"] == [25, 27, 29, 31, 33, 35, 37, 39]
    assert flips[0].detail["top"][:4] == ["3", "8", "8", "3"]


def test_always_never_and_own_stride_are_told_apart(rng):
    """All right, none right, and a flat mixture under a known stride that the data do not show."""
    always = analyse_sweep(plant(rng, lambda *_: 9.0), stride=None, rng=rng, draws=99)
    never = analyse_sweep(plant(rng, lambda *_: -9.0), stride=None, rng=rng, draws=99)
    assert (advice_of(always).detail["state"], advice_of(never).detail["state"]) == ("all", "none")
    assert advice_of(always).value is None  # no stride, so no residue to name
    mixed = advice_of(analyse_sweep(plant(rng, layout_sd=1.0), stride=4, rng=rng, draws=99))
    assert (mixed.detail["state"], mixed.detail["stride"], mixed.detail["stride_from"]) == ("some", 4, "own")


def test_residues_say_how_many_trials_stand_behind_them(rng):
    """Four lengths in three families: 12 trials, and an interval that four lengths allow, not twelve."""
    findings = analyse_sweep(plant(rng, square, layout_sd=0, noise_sd=0), stride=None, rng=rng, draws=99)
    safe = [f for f in findings if f.name == "sweep_residue" and f.detail["safe"]]
    assert [f.residue for f in safe] == [1, 2]
    assert safe[0].detail | {"mean_margin": 0} == {
        "trials": 12, "right": 12, "lengths": 4, "right_lengths": 4, "safe": True, "mean_margin": 0
    }  # fmt: skip
    assert safe[0].low == pytest.approx(0.51, abs=0.01)


def test_a_dropped_trial_costs_its_length_or_its_block(rng):
    """One missing length is left out for all; a block that misses most is left out itself."""
    whole = plant(rng, square)
    one = [o for o in whole if o.trial != "0-line-30"]
    flips = [f for f in analyse_sweep(one, stride=None, rng=rng, draws=19) if f.name == "flips"]
    assert [len(f.detail["lengths"]) for f in flips] == [15, 15, 15]
    most = [o for o in whole if "/line" not in o.block or o.layout < 27]
    flips = [f for f in analyse_sweep(most, stride=None, rng=rng, draws=19) if f.name == "flips"]
    assert [f.detail["family"] for f in flips] == ["spaces", "comment"]
    with pytest.raises(UsageError, match="measure something first"):
        analyse_sweep([], stride=None, rng=rng)


def test_the_smallest_detectable_effect_is_detected(rng, monkeypatch):
    """A square wave of that SD is found about four times in five, though its noise is known from 16 lengths."""
    monkeypatch.setattr("phasescope.statistics.sweep.CANDIDATES", (2, 4))
    hits = []
    for _ in range(30):
        flat = period_of(analyse_sweep(plant(rng), stride=None, rng=rng, draws=19))
        size = flat.detail["smallest_detectable_effect"]
        wave = plant(rng, lambda prompt, position, size=size: size * (1 if position % 4 < 2 else -1))
        hits.append(period_of(analyse_sweep(wave, stride=None, rng=rng, draws=199)).p_value <= 0.05)
    assert np.mean(hits) >= 0.6


def test_a_scorer_without_log_probabilities_is_searched_by_its_score(rng):
    """The outcome is then the score alone, and the flips are of the verdict."""
    plain = [
        o.model_copy(update={"logprob": None, "rival_logprob": None, "answer": None})
        for o in plant(rng, square, layout_sd=0, noise_sd=0)
    ]
    findings = analyse_sweep(plain, stride=None, rng=rng, draws=199)
    assert [f.outcome for f in findings if f.name == "period"] == ["accuracy"]
    assert period_of(findings, "accuracy").value == 4
    assert next(f for f in findings if f.name == "flips").value == 8


@pytest.mark.parametrize(
    "curve",
    [
        lambda prompt, position: 20 * np.exp(-position / 30),
        lambda prompt, position: np.sin(position / 6),
        lambda prompt, position: 3 / (1 + np.exp((position - 38) / 2)),
        lambda prompt, position: abs(position - 40) / 4,
    ],
    ids=["decay", "slow wave", "step", "kink"],
)
@pytest.mark.parametrize("lengths", [LENGTHS, range(24), range(48)], ids=len)
def test_a_model_without_noise_on_a_smooth_curve_has_no_period(curve, lengths, rng):
    """A dense model is deterministic: its margin drifts with L exactly, and no cubic is exact."""
    observations = plant(rng, curve, layout_sd=0, noise_sd=1e-3, lengths=lengths)
    found = period_of(analyse_sweep(observations, stride=None, rng=rng, draws=199))
    assert found.value is None or found.p_value > 0.02, (found.value, found.p_value)


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_a_deterministic_period_on_a_curve_is_found(stride, rng):
    """Three turns or more of a rough profile stand out from any curve."""
    profile = np.array([1.0, -0.5, 0.8, -1.2, 0.1, 0.9, -0.7, -0.4])[:stride]

    def effect(prompt, position):
        return 20 * np.exp(-position / 30) + profile[position % stride]

    observations = plant(rng, effect, layout_sd=0, noise_sd=0.02, lengths=range(24))
    found = period_of(analyse_sweep(observations, stride=None, rng=rng, draws=499))
    assert (found.value, found.p_value <= 0.01) == (stride, True)
