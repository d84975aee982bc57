"""What the tests of the command line share: a base install, and a measured run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.base_install import BaseInstall, serving
from tests.cli.in_process import phasescope

MODEL = "w8s8-1kv"


@pytest.fixture(scope="session")
def base_install() -> Iterator[BaseInstall]:
    """The command line without torch and its friends; each command in a process of its own."""
    with serving() as served:
        yield served


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a measured run, `run`: to be read, or copied."""
    folder = tmp_path_factory.mktemp("measured")
    phasescope(
        *("measure", MODEL, "full-1kv", "--protocol", "in_sequence", "--out", "run"),
        *("--contexts", "3", "--threads", "1"),
        cwd=folder,
    )
    return folder
