"""Figures."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from phasescope.reporting.figures import Curve, context_dots, phase_curve, residue_bars, spread_forest
from phasescope.statistics.verdict import find


def curve(findings, kind="phase_rate", role="condition"):
    """The rates of that kind."""
    return Curve.of_findings(findings[0].condition, role, [f for f in findings if f.name == kind])


def classes(figure, tag):
    """The classes of all elements of a kind."""
    return [node.get("class") for node in ElementTree.fromstring(figure.svg).iter(tag)]


def test_the_phase_curve_shows_condition_and_control_with_bands_and_names(sensitive, control):
    """Both on one axis, each with its band, a dot per phase and its own name."""
    figure = phase_curve("k", curve(sensitive()), curve(control(), role="control"), "source")
    assert classes(figure, "path") == ["band control", "curve control", "band condition", "curve condition"]
    assert classes(figure, "circle").count("dot condition") == 8
    texts = {node.text for node in ElementTree.fromstring(figure.svg).iter("text")}
    assert {"w8s8", "full", "phase of the source (position mod 8)"} <= texts
    assert figure.rows[7] == ("7", "4.0\xa0%", "1.0\xa0%", "7.0\xa0%", "96.0\xa0%", "93.0\xa0%", "99.0\xa0%")


@pytest.mark.parametrize("length", [4, 80])
def test_names_of_curves_lie_neither_on_each_other_nor_outside(length, sensitive, flat, control):
    """Names keep clear of each other and of the frame, even when they are long or the curves coincide."""
    for condition in (sensitive, flat):
        beside = curve(control("b" * length), role="control")
        figure = phase_curve("k", curve(condition("a" * length)), beside, "source")
        root = ElementTree.fromstring(figure.svg)
        names = [node for node in root.iter("text") if (node.get("class") or "").startswith("name")]
        (x1, y1), (x2, y2) = [(float(node.get("x")), float(node.get("y"))) for node in names]
        half = 4 * len(names[0].text)
        assert abs(y1 - y2) >= 13 or abs(x1 - x2) >= 2 * half
        assert all(x - half >= 54 and x + half <= 460 for x in (x1, x2))
        assert all(22 <= y <= 224 for y in (y1, y2))


def test_the_found_period_is_banded_and_its_weakest_phase_marked(sensitive):
    """Period 8 in 24 residues: one shaded repeat, a named bracket, three marked bars."""
    figure = residue_bars("k", curve(sensitive(), "residue_rate"), 8, "source")
    assert classes(figure, "rect").count("repeat") == 1
    assert classes(figure, "rect").count("bar weak") == 3
    assert "period 8" in figure.svg
    assert figure.caption == "Period 8, found from the data; the outlined bars are its weakest phase, 7."


@pytest.mark.parametrize(("period", "words"), [(None, "No period was found."), (16, "does not divide 24")])
def test_a_period_that_cannot_repeat_is_named_and_not_drawn(period, words, sensitive):
    """Bands of 16 in 24 residues would be a lie."""
    figure = residue_bars("k", curve(sensitive(), "residue_rate"), period, "source")
    assert words in figure.caption
    assert not {"repeat", "bar weak"} & set(classes(figure, "rect"))


def test_every_context_is_a_dot_at_every_phase():
    """25 contexts × 8 phases, and the table holds their quartiles."""
    shares = np.linspace(0, 1, 200).reshape(25, 8)
    figure = context_dots("k", "w8s8", "condition", shares, "source")
    assert classes(figure, "circle") == ["dot context condition"] * 200
    assert figure.rows[0][1] == "0.0\xa0%"
    assert figure.rows[7][5] == "100.0\xa0%"


def test_the_forest_tells_states_by_filling_and_covers_every_interval(sensitive, flat, control, undecided):
    """Filled, hollow and half filled; the axis starts at 0 and reaches the largest upper end."""
    conditions = [("full", True, "flat", control()), ("w8s8", False, "sensitive", sensitive())]
    conditions += [("four", False, "flat", flat()), ("faint", False, "undecided", undecided())]
    figure = spread_forest("k", [(a, c, s, find(f, "phase_sd")) for a, c, s, f in conditions])
    assert classes(figure, "circle") == [
        "ring control",
        "ring condition full",
        "ring condition",
        "ring condition",
    ]
    assert classes(figure, "path") == ["ring condition full"]
    ends = [
        float(n.get("x2"))
        for n in ElementTree.fromstring(figure.svg).iter("line")
        if "interval" in n.get("class")
    ]
    ticks = [n for n in ElementTree.fromstring(figure.svg).iter("text") if n.get("class") == "tick"]
    assert ticks[0].text == "0"
    assert max(ends) <= float(ticks[-1].get("x"))


def test_the_same_findings_draw_the_same_bytes(sensitive, control):
    """Nothing in a figure depends on chance or time."""
    drawn = [
        phase_curve("k", curve(sensitive()), curve(control(), role="control"), "source").svg for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("stride", [2, 16, 128])
def test_any_stride_can_be_drawn(stride, sensitive):
    """Two phases and 128 phases, with and without dots."""
    rates = [
        sensitive()[-1].model_copy(update={"residue": r, "stride": stride, "value": 0.5})
        for r in range(stride)
    ]
    figure = phase_curve("k", Curve.of_findings("w", "condition", rates), None, "query")
    assert len(figure.rows) == stride
    assert ("circle" in figure.svg) == (stride <= 32)
