"""What is imported, and when: by names, since times depend on the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import contextlib, io, sys
{before}
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    code = {call}
print(code, *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def imported(call: str, before: str = "from phasescope.cli import run") -> tuple[str, set[str]]:
    """A call's value, and the packages that are imported after it."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(call=call, before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    code, *names = done.stdout.split()
    return code, set(names)


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["no-such-command"]])
def test_the_command_alone_imports_nothing_that_computes(words: list[str]) -> None:
    """Neither scipy, nor torch, nor anything that reads or asks."""
    code, names = imported(f"run({words})")
    assert code == ("2" if words[0].startswith("no") else "0")
    assert not names & {
        "scipy",
        "torch",
        "transformers",
        "pyarrow",
        "tokenizers",
        "httpx2",
        "jinja2",
        "numpy",
    }


def test_the_package_alone_imports_nothing() -> None:
    """Its names come when they are asked for."""
    _, names = imported("None", before="import phasescope as ps\ndir(ps)")
    assert not names & {"numpy", "pydantic", "typer", "scipy", "torch"}


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--lr-gates", "0"],
        ["train", "--warmup", "1000000000000000000"],
        ["train", "--first-pairs", "1000000000000000000"],
        ["train", "--fillers", "1000000000000000000"],
        ["train", "-h"],
    ],
)
def test_a_refused_setting_of_training_needs_no_torch(words: list[str]) -> None:
    """Ranges stand in classes that compute nothing."""
    code, names = imported(f"run({words})")
    assert code == ("0" if "-h" in words else "2")
    assert not names & {"torch", "transformers", "scipy"}
