"""Elements and the frame."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from phasescope.reporting.svg import Frame, drawing, element, text


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


def test_heights_outside_the_axis_are_drawn_at_its_edge():
    """An interval that reaches beyond 100 % stays inside the plot."""
    frame = Frame(4, "phase")
    assert frame.y(1.2) == frame.y(1.0) == frame.top
    assert frame.y(-0.1) == frame.y(0.0)
