"""Sentences and rows."""

from __future__ import annotations

import pytest

from phasescope.reporting.sentences import rows, sentence, verdict
from phasescope.reporting.words import number, plain
from phasescope.statistics.verdict import judge


def test_a_period_and_an_interval_above_zero_make_an_condition_phase_sensitive(sensitive):
    """Its sentence gives the period, whose stride it is, the phase SD with interval, and the honest gap."""
    said = sentence(sensitive()).replace("\N{NO-BREAK SPACE}", " ")
    assert judge(sensitive()).state == "sensitive"
    assert said.startswith(
        "w8s8 is phase-sensitive: recall repeats every 8 tokens, its own stride (p < 0.001)"
    )
    assert "phase SD of 28.0 points [26.0, 30.0]" in said
    assert "89.0 points between its worst and best phase" in said


def test_a_flat_condition_says_what_would_have_been_seen(flat):
    """Flat is a finding with a size, not the absence of one."""
    assert judge(flat()).state == "flat"
    assert "is flat: a phase SD of 1.3 points would have been found four times in five" in sentence(flat())


def _with_smallest(findings, value):
    return [
        f.model_copy(update={"value": value}) if f.name == "smallest_detectable_effect" else f
        for f in findings
    ]


def test_silence_of_too_few_data_is_undecided_and_not_flat(flat):
    """Where it is not known how small an effect would have been seen, nothing is called flat."""
    few = _with_smallest(flat(), None)
    assert judge(few).state == "undecided"
    assert "too few data to say how small an effect" in sentence(few)


def test_answers_without_variation_claim_no_power(flat):
    """A control at 100 % would not have shown an effect of 0.0 points."""
    said = sentence(_with_smallest(flat(), 0.0))
    assert "would show only in a harder task" in said
    assert "four times in five" not in said


@pytest.mark.parametrize(("mean", "said"), [(0.001, True), (0.5, False), (0.99, True)])
def test_a_flat_condition_at_the_floor_or_the_ceiling_says_so(flat, mean, said):
    """A model that recalls nothing is no even model."""
    found = [f.model_copy(update={"value": mean}) if f.name == "mean_accuracy" else f for f in flat()]
    assert ("little room to differ" in sentence(found)) == said


def test_disagreeing_findings_are_undecided_with_both_sides_named(undecided):
    """The sentence gives the interval and the test that contradict each other."""
    said = sentence(undecided()).replace("\N{NO-BREAK SPACE}", " ")
    assert judge(undecided()).state == "undecided"
    assert "no period was found" in said
    assert "stride 8 gives p = 0.200" in said
    assert "[0.2, 1.8] excludes 0" in said


def test_a_period_whose_phase_sd_may_be_zero_is_undecided(sensitive):
    """A test and an interval that disagree are not settled in favour of the louder one."""
    doubtful = [f.model_copy(update={"low": 0.0}) if f.name == "phase_sd" else f for f in sensitive()]
    assert judge(doubtful).state == "undecided"
    assert "recall repeats every 8 tokens" in sentence(doubtful)
    assert "includes 0" in sentence(doubtful)


def test_without_an_interval_nothing_is_decided(sensitive):
    """One context gives no jackknife interval, so even a loud curve is no verdict."""
    bare = [
        f.model_copy(update={"low": None, "high": None}) if f.name == "phase_sd" else f for f in sensitive()
    ]
    assert judge(bare).state == "undecided"
    assert "too few contexts" in sentence(bare)


def test_a_period_that_falls_to_the_correction_does_not_count(sensitive):
    """A p of 0.02 that becomes 0.12 over six conditions names no period."""
    corrected = [
        f.model_copy(update={"p_value": 0.02, "detail": {**f.detail, "p_holm": 0.12}}) if f.p_value else f
        for f in sensitive()
    ]
    assert judge(corrected).state == "undecided"
    assert rows(corrected)[0][-1] == "none (8)"


def test_a_period_other_than_the_stride_is_said(sensitive):
    """Recall that repeats every 8 in a model of stride 4 is a warning, not a confirmation."""
    other = [f.model_copy(update={"expected": 4}) if f.name == "period" else f for f in sensitive()]
    assert "every 8 tokens, though its own stride is 4" in sentence(other)


def test_controls_come_first_and_a_flat_one_is_named(sensitive, flat, control):
    """Rows and sentence put the negative control where it is seen."""
    everything = [*sensitive(), *flat(), *control()]
    assert [row[0] for row in rows(everything)] == ["full", "w8s8", "four-heads"]
    said = verdict(everything)
    assert said.startswith("1 of 2 tested conditions are phase-sensitive, most of all w8s8")
    assert "four-heads is flat" in said
    assert "the control full is flat" in said


def test_a_control_that_is_not_flat_spoils_the_verdict(sensitive):
    """An effect in the control may explain every other condition, and the sentence says so."""
    loud = [f.model_copy(update={"condition": "full", "expected": None}) for f in sensitive()]
    assert judge(loud).control
    assert "NOT flat" in sentence(loud)
    assert "may explain the rest" in verdict([*sensitive(), *loud])


def test_an_unknown_grid_is_no_control(flat):
    """A foreign model whose grid is not known expects no period either, and is still tested."""
    foreign = [
        f.model_copy(update={"expected": None, "detail": {**f.detail, "control": False}})
        if f.name == "period"
        else f
        for f in flat()
    ]
    assert not judge(foreign).control


def test_one_condition_without_control_says_that_there_was_none(sensitive):
    """The missing control stands in the headline."""
    assert verdict(sensitive()).endswith(
        "there was no control, so an effect of position or engine is not ruled out."
    )


@pytest.mark.parametrize(
    ("given", "expected"), [([], "Nothing was measured."), (["control"], "Control full is flat")]
)
def test_reports_without_tested_conditions_have_a_verdict(given, expected, control):
    """Nothing and a lone control are described as what they are."""
    assert verdict(control() if given else []).startswith(expected)


def test_a_finer_measure_is_named_where_accuracy_is_flat(flat):
    """A flat accuracy over a log-probability that repeats is not called simply flat."""
    finer = [
        f.model_copy(update={"outcome": "logprob", **change})
        for f in flat()
        if (
            change := {
                "phase_sd": {"value": 0.2, "low": 0.1, "high": 0.3},
                "period": {"value": 8, "p_value": 0.001},
            }.get(f.name)
        )
    ]
    assert "log-probability, a finer measure, repeats every 8 tokens" in sentence([*flat(), *finer])


def test_names_lose_control_and_direction_characters():
    """An escape sequence or a right-to-left override in a name cannot reach the terminal."""
    assert "\x1b" not in plain("a\x1b[31mb")
    assert "\u202e" not in plain("a\u202eb")
    assert len(plain("x" * 500)) == 60


def test_numbers_have_a_true_minus_and_no_negative_zero():
    """What rounds to nothing has no sign."""
    assert [number(value) for value in (-0.04, -1.25, 3.0)] == ["0.0", "−1.2", "3.0"]


def test_silence_of_too_few_permutations_is_undecided_and_says_how_many_are_needed(flat):
    """Over 3 conditions and 50 permutations the smallest corrected p is 0.059: nothing could be found."""
    marks = {"draws": 50, "conditions_compared": 3}
    few = [
        f.model_copy(update={"detail": {**f.detail, **marks}}) if f.name == "period" else f for f in flat()
    ]
    assert (judge(few).state, judge(few).draws_needed) == ("undecided", 60)
    assert "give --draws 60 or more" in sentence(few)
    enough = [f.model_copy(update={"detail": {**f.detail, "draws": 60}}) for f in few]
    assert (judge(enough).state, judge(enough).draws_needed) == ("flat", None)


def test_a_p_at_its_floor_is_only_known_to_be_at_most_that(sensitive):
    """Twelve conditions and 2,000 permutations give 0.006 at best, however strong the effect."""
    marks = {"draws": 2000, "conditions_compared": 12, "p_holm": 12 / 2001}
    found = [
        f.model_copy(update={"p_value": 1 / 2001, "detail": {**f.detail, **marks}})
        if f.name == "period"
        else f
        for f in sensitive()
    ]
    assert "p ≤ 0.006, 2,000 draws" in sentence(found).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(("p", "said"), [(None, True), (0.4, False)])
def test_a_flat_condition_says_if_its_layouts_could_not_see_an_interaction(flat, p, said):
    """Accuracy that depends on the sum of two residues cancels in either: silence about it is no evidence."""
    test = next(f for f in flat() if f.name == "phase_test")
    acting = test.model_copy(update={"name": "interaction", "p_value": p, "detail": {"together": None}})
    assert ("act together was not seen" in sentence([*flat(), acting])) == said


@pytest.mark.parametrize(("after", "words"), [(1, "1 further token of"), (2, "2 further tokens of")])
def test_a_step_says_where_it_is_and_what_was_found_of_a_period(flat, after, words):
    """That no period was found is said with its p, and not as a fact about the model."""
    test, period = (next(f for f in flat() if f.name == name) for name in ("phase_test", "period"))
    detail = {"steps": [{"along": "offset", "after": after, "size": -0.3}], "more_than_period": True}
    step = test.model_copy(update={"name": "steps", "value": -0.3, "p_value": 0.001, "detail": detail})
    said = sentence([*flat(), step]).replace("\N{NO-BREAK SPACE}", " ")
    assert f"falls by 30.0 points after {words} padding" in said
    assert f"no period was found beside (p = {period.p_value:.3f})" in said
