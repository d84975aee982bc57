"""Pages from templates: every text is escaped, and a name that is not given is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2

from .words import nats, number, p_words, percent, plain, points


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("phasescope.reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    formats = (nats, number, p_words, percent, plain, points)
    environment.filters |= {format.__name__: format for format in formats}
    return environment


def filled(name: str, **content: Any) -> str:
    """A template of this package with its content."""
    return _templates().get_template(name).render(**content)
