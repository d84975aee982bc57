"""Whole files of every kind, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.kinds import write_whole


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole file of every kind."""
    folder = tmp_path_factory.mktemp("whole")
    write_whole(folder)
    return folder
