"""Pages from templates: every text is escaped, and a name that is not given is an error."""

from __future__ import annotations

from typing import Any

import jinja2


def filled(name: str, **content: Any) -> str:
    """A template of this package with its content."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("phasescope.reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(name).render(**content)
