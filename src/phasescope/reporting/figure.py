"""A figure: in a page, in a notebook, or as a file of its own."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from ..files import write_atomic
from .pages import filled
from .svg import drawing, element


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing, its caption, and the same numbers as a table.

    Attributes:
        svg: the drawing for a page, whose style sheet gives it its colours.
        title, caption: what it shows.
        columns: what its numbers are.
        rows: its numbers as text.
    """

    svg: Markup
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    @property
    def standalone(self) -> str:
        """The drawing as an SVG file that needs nothing beside it: with its name space and its style."""
        style = element("style", Markup(filled("figure.css")))
        return (
            str(self.svg)
            .replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
            .replace(">", f">{style}", 1)
        )

    def save(self, path: str | Path) -> None:
        """Write the drawing as an SVG file."""
        write_atomic(Path(path), self.standalone)

    def _repr_svg_(self) -> str:
        return self.standalone

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.standalone.encode()).decode()
        image = element("img", src=f"data:image/svg+xml;base64,{data}", alt=self.title, width=520)
        title, caption = element("strong", self.title), element("figcaption", self.caption)
        return str(element("figure", title, element("br"), image, caption))

    def __repr__(self) -> str:
        return f"Figure({self.title!r}, {len(self.rows)} rows)"


def figure(
    key: str,
    title: str,
    caption: str,
    size: tuple[float, float],
    parts: Sequence[str],
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    heading: str = "",
) -> Figure:
    """A figure of these parts.

    Args:
        key: an identifier that is unique in the page.
        title: what the drawing is, for readers who do not see it.
        caption: what it shows, in words with numbers.
        size: width and height of the view box.
        parts: the drawing.
        columns: what its numbers are.
        rows: its numbers as text.
        heading: what stands above it; by default the title.
    """
    return Figure(drawing(key, title, caption, size, *parts), heading or title, caption, columns, rows)
