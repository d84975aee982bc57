"""The page about the theory holds what the script writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from research.theory_figures import MARKS, found_figure, tables

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_figure_and_tables_in_the_repository_are_what_the_script_gives():
    """The same bytes; the module that the page names is the one that writes it."""
    assert found_figure() == (DOCS / "theory_found.svg").read_text(encoding="utf-8")
    page = (DOCS / "theory.md").read_text(encoding="utf-8")
    written, _, _ = page.partition(MARKS[0])[2].partition(MARKS[1])
    assert written.strip() == "\n".join(tables()).strip()
    assert "python -m research.theory_figures" in page
