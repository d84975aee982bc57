"""Elements and the frame."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from phasescope.reporting.svg import Frame, drawing, element, even_ticks, text
from phasescope.reporting.words import tick_words


def test_children_and_attributes_are_escaped_and_markup_is_not():
    """A name can close neither its element nor its attribute."""
    inner = element("title", '<script>"&')
    drawn = element("g", inner, class_='"><script>')
    assert drawn == '<g class="&#34;&gt;&lt;script&gt;"><title>&lt;script&gt;&#34;&amp;</title></g>'


def test_numbers_are_short_and_stable():
    """Two decimals, no trailing zeros, no exponent."""
    assert text(1 / 3, 2.0, "a") == '<text x="0.33" y="2" class="label" text-anchor="middle">a</text>'


def test_a_drawing_is_named_and_described():
    """Readers who don't see it get a title and a description."""
    root = ElementTree.fromstring(drawing("k", "What", "It shows", (10, 20)))
    assert root.get("aria-labelledby") == "k-title k-desc"
    assert [(child.get("id"), child.text) for child in root] == [("k-title", "What"), ("k-desc", "It shows")]


@pytest.mark.parametrize("columns", [2, 4, 8, 12, 16, 24, 64, 128, 1000])
def test_the_axis_starts_at_zero_ends_at_one_hundred_and_is_not_crowded(columns):
    """Percent labels span 0 to 100; at most 12 columns carry a number, the first always."""
    root = ElementTree.fromstring(f"<svg>{Frame(columns, 'phase').axes()}</svg>")
    words = [node.text for node in root.iter("text")]
    assert words[:5] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    numbers = [word for word in words if word and word.isdigit()]
    assert 2 <= len(numbers) <= 12
    assert numbers[0] == "0"


@pytest.mark.parametrize(
    ("low", "high", "whole", "words"),
    [
        (0, 1, True, ["0", "1"]),
        (0, 5, True, ["0", "1", "2", "3", "4", "5"]),
        (0, 6, True, ["0", "2", "4", "6"]),
        (0, 12_345, True, ["0", "2,500", "5,000", "7,500", "10,000", "12,500"]),
        (0, 12.5, False, ["0.0", "2.5", "5.0", "7.5", "10.0", "12.5"]),
        (-0.03, 0.61, False, ["−0.2", "0.0", "0.2", "0.4", "0.6", "0.8"]),
        (-3, 0, False, ["−3", "−2", "−1", "0"]),
        (0, 0, False, ["0.000", "0.002", "0.004", "0.006", "0.008", "0.010"]),
        (0, 0, True, ["0", "1"]),
    ],
)
def test_ticks_span_what_is_drawn_and_their_words_are_exact(low, high, whole, words):
    """Half a sample is no tick, and 2.5 is not called 2."""
    ticks = even_ticks(low, high, whole=whole)
    assert tick_words(ticks) == words
    assert ticks[0] <= low <= high <= ticks[-1]
    written = [float(word.replace("−", "-").replace(",", "")) for word in words]
    assert written == pytest.approx(ticks, abs=1e-12)


@pytest.mark.parametrize("high", [1e-6, 0.0101, 0.333, 0.5, 0.99, 1.0, 3.0, 7.0, 99.0, 1e6 + 1])
@pytest.mark.parametrize("low", [0.0, -0.2, -17.0])
def test_an_axis_of_any_span_has_two_to_seven_ticks(low, high):
    """None is rounded away, none is written twice."""
    words = tick_words(even_ticks(low, high))
    assert 2 <= len(words) == len(set(words)) <= 7


def test_negative_values_are_drawn_below_the_line_of_zero():
    """The floor is the first tick, and zero has the axis' line."""
    frame = Frame(4, "phase", ticks=even_ticks(-0.2, 0.6), unit="")
    assert frame.y(-0.2) == frame.height - frame.bottom > frame.y(-0.1) > frame.y(0.0) > frame.y(0.6)
    root = ElementTree.fromstring(f"<svg>{frame.axes()}</svg>")
    (zero,) = [node for node in root.iter("line") if node.get("class") == "axis"]
    assert float(zero.get("y1")) == pytest.approx(frame.y(0.0), abs=0.01)
    assert {"−20", "0", "60"} <= {node.text for node in root.iter("text")}


def test_heights_outside_the_axis_are_drawn_at_its_edge():
    """An interval that reaches beyond 100 % stays inside the plot."""
    frame = Frame(4, "phase")
    assert frame.y(1.2) == frame.y(1.0) == frame.top
    assert frame.y(-0.1) == frame.y(0.0)
