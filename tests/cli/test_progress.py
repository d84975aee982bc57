"""The bar of a command."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from phasescope import WindowGrid
from phasescope.backends import Planted
from phasescope.cli import progress
from phasescope.cli.terminal import Terminal
from phasescope.protocols import PrefixPadding
from phasescope.running.runner import Condition, run
from tests.cli.in_process import phasescope


def test_a_report_shows_how_many_conditions_it_has_analysed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows take half a minute: on a terminal one sees how far it is, and nothing is left of it."""
    planted = Planted(grid=WindowGrid(4, 4), curve=(0.8,) * 4)
    run([Condition(n, planted, PrefixPadding(pairs=4, contexts=4, residues=8)) for n in "ab"], tmp_path, 0)
    screen = io.StringIO()
    shown = Terminal(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(progress, "Terminal", lambda **_: shown)
    printed = phasescope("report", tmp_path, "--draws", "50")
    assert "conditions" in screen.getvalue()
    assert "2/2" in screen.getvalue()
    assert "2/2" not in printed
