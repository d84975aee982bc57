"""Templates are programs of strangers: they end, and take no more memory than is theirs."""

from __future__ import annotations

import time

import pytest
from jinja2 import TemplateError

from phasescope.text import template
from phasescope.text.template import compiled, rendered

GREEDY = {
    "a long text": "{{ 'a' * 10**9 }}",
    "a long list": "{{ ([1] * 10**9) | length }}",
    "a power": "{{ 10 ** (10 ** 9) }}",
    "squares": "{% set n = namespace(v=9) %}{% for i in range(99999) %}{% set n.v = n.v * n.v %}{% endfor %}",
    "a wide field": "{{ 'a' | center(10**10) }}",
    "growth": "{% set n = namespace(v='a') %}{% for i in range(99) %}"
    "{% set n.v = n.v | replace('a', 'aaaaaaaaaaaaaaaa') %}{% endfor %}",
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "output": "{% for a in range(99999) %}{% for b in range(99999) %}aaaaaaaaaaaa{% endfor %}{% endfor %}",
    "recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
}


@pytest.mark.parametrize("source", GREEDY.values(), ids=GREEDY)
def test_a_template_without_end_ends(source, monkeypatch):
    """In a second more than it was given, in one exception that a caller knows."""
    monkeypatch.setattr(template, "SECONDS", 0.5)
    monkeypatch.setattr(template, "ROOM", 2**28)
    began = time.monotonic()
    with pytest.raises((TemplateError, RecursionError)):
        rendered(compiled(source))
    assert time.monotonic() - began < 5


def test_a_template_may_catch_nothing_of_its_end(monkeypatch):
    """What is raised is its own kind; afterwards others are rendered as before."""
    monkeypatch.setattr(template, "SECONDS", 0.3)
    with pytest.raises(TemplateError, match=r"more than 0\.3 seconds"):
        rendered(compiled("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"))
    assert rendered(compiled("{{ 'ab' * 3 }}{{ 2 ** 5 }}{{ 3 * 4 }}")) == "ababab3212"
