"""What a report says of a padding sweep: for a terminal and for the page."""

from __future__ import annotations

import numpy as np
import pytest

from phasescope.reporting.sweep_page import (
    apart,
    sweep_section,
    sweep_sentence,
    sweep_text,
)
from phasescope.statistics.analyses import analyse_conditions
from phasescope.statistics.conditions import Condition
from tests.descriptions import described
from tests.statistics.test_sweep import plant, square

ASKED = {
    "comparable": False,
    "prompts": [{"name": "p0", "answers": ["8", "32"], "families": ["line"]}],
    "repeating_families": {},
}


def findings(observations, *, control=False, stride=None, asked=ASKED, name="m"):
    """One condition's findings as a report has them."""
    strides = [stride] if stride else [] if control else None
    condition = Condition(
        name, "r", described(name, strides, name="sweep", **asked), stride or 24, observations
    )
    return analyse_conditions([condition], {}, draws=499).findings


@pytest.fixture(scope="module")
def flipping():
    """A model whose answer follows L mod 4."""
    return findings(plant(np.random.default_rng(1), square, layout_sd=0.1, noise_sd=0.1), stride=4)


def test_a_flipping_model_is_described_with_its_period_its_safe_residues_and_what_to_add(flipping):
    """Everything a prompt's author needs, in one sentence."""
    said = sweep_sentence(flipping).replace("\N{NO-BREAK SPACE}", " ")
    assert said.startswith(
        "m is phase-sensitive: the margin over the rival repeats every 4 pad tokens (p ≤ 0.002, 499 draws"
    )
    assert "its own stride is 4" in said
    assert "changes 24 times over L = 24 to 39 in 3 strips" in said
    assert "where L mod 4 is 1 or 2 (on lengths left out of the choice: 24 of 24)" in said
    assert "add 25 pads (1 would have the same residue, but was not measured)" in said


def test_the_strip_shows_each_length_with_both_probabilities(flipping):
    """Sixteen lengths in a line, per padding; the residues with the trials behind them."""
    text = sweep_text(flipping)
    strip = text.split("\n\n")[0].splitlines()
    assert strip[0] == "m · p0 · line"
    assert strip[1].split()[:3] == ["L", "24", "25"]
    assert strip[2].split()[:5] == ["on", "top", "3", "8", "8"]
    assert strip[3].split()[0] == "P(8)"
    assert strip[4].split()[0] == "P(32)"
    assert [float(a) + float(b) for a, b in zip(strip[3].split()[1:], strip[4].split()[1:], strict=True)] == (
        pytest.approx([1.0] * 16, abs=0.002)
    )
    assert "1 mod 4 12 12 4 of 4 51 to 100 % yes" in " ".join(text.split())


def test_the_page_has_a_figure_per_strip_coloured_and_numbered_by_residue(flipping):
    """The residue stands above each dot, so that colour is never the only sign; all as a table too."""
    section = sweep_section("sweep-1", flipping)
    assert (section["state"], len(section["figures"])) == ("sensitive", 3)
    figure = section["figures"][0]
    assert figure.svg.count('class="dot r1"') == 4
    assert len(figure.rows) == 16
    assert figure.columns == ("L", "on top", "P(8)", "P(32)")
    assert "by colour: L mod 4" in figure.caption
    terms = {term: number for term, number, _ in section["numbers"]}
    assert terms["Safe residues of L mod 4"] == "1, 2"
    assert terms["Right where not used for the choice"] == "24 of 24"


def test_always_never_and_by_chance_are_said_as_such():
    """No padding needed, none helps, and what worked without a period is not praised."""
    rng = np.random.default_rng(2)
    always = sweep_sentence(findings(plant(rng, lambda *_: 9.0), control=True))
    assert always.startswith("Control m is flat")
    assert "no padding is needed" in always
    assert "no number of these pads helps" in sweep_sentence(findings(plant(rng, lambda *_: -9.0)))
    mixed = sweep_sentence(findings(plant(rng, layout_sd=1.0)))
    assert "without a period" in mixed
    assert "safe" not in mixed


def test_scores_that_do_not_vary_are_not_said_to_have_no_period():
    """A scorer that is always wrong shows nothing of a period, with or without a p of 1."""
    planted = plant(np.random.default_rng(5), lambda *_: -9.0)
    scored = [o.model_copy(update={"answer": None, "logprob": None, "rival_logprob": None}) for o in planted]
    said = sweep_sentence(findings(scored))
    assert "the score is the same in every trial, so that no period can be tested" in said
    assert "has no period" not in said


def test_a_faint_period_is_flat_and_a_padding_with_the_same_beat_is_blamed():
    """A deterministic model repeats by a hundredth of a nat; a padding of four tokens does so by itself."""
    rng = np.random.default_rng(3)
    faint = findings(plant(rng, lambda q, x: 2 + 0.02 * square(q, x), layout_sd=0, noise_sd=1e-4))
    assert "too little to matter" in sweep_sentence(faint)
    assert sweep_sentence(faint).startswith("m is flat")
    beat = findings(plant(rng, square, layout_sd=0.1), asked={**ASKED, "repeating_families": {"text 1": 4}})
    assert "the padding itself repeats in text 1 (every 4 tokens)" in sweep_sentence(beat)
    other = findings(plant(rng, square, layout_sd=0.1), asked={**ASKED, "repeating_families": {"text 1": 3}})
    assert "itself" not in sweep_sentence(other)


def test_a_period_that_does_not_stand_beside_other_conditions_gives_no_advice(flipping):
    """After correction over conditions p may be too large; then no residue is called safe."""
    weak = [
        f.model_copy(update={"detail": {**f.detail, "p_holm": 0.2}}) if f.name == "period" else f
        for f in flipping
    ]
    said = sweep_sentence(weak)
    assert said.startswith("m is flat")
    assert "where L mod" not in said


def test_sweeps_are_kept_apart_from_other_conditions_controls_first(flipping):
    """A condition with strips is a sweep."""
    control = findings(plant(np.random.default_rng(4), lambda *_: 3.0), control=True, name="full")
    other = [flipping[0].model_copy(update={"condition": "kv", "name": "mean_accuracy"})]
    rest, sweeps = apart([*flipping, *control, *other])
    assert [f.condition for f in rest] == ["kv"]
    assert list(sweeps) == ["full", "m"]
