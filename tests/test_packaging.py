"""What is shipped: wheel and sdist build, and install where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: object, cwd: Path) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=plain, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_wheel_of_the_sdist_works_in_a_fresh_environment(tmp_path):
    """Built from the sdist alone, installed with what it names; a planted run is asked and reported, without torch."""
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "-d", tmp_path, cwd=ROOT)
    [sdist] = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    [source] = (tmp_path / "source").iterdir()
    assert "Apache License" in (source / "LICENSE").read_text()
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", tmp_path, cwd=source)
    [wheel] = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "fresh", cwd=tmp_path)
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    phasescope = tmp_path / "fresh" / "bin" / "phasescope"
    assert run(phasescope, "--version", cwd=tmp_path).strip() in wheel.name.replace("-", " ")
    assert "w8s8-1kv" in run(phasescope, "list", cwd=tmp_path)
    made = (
        "from pathlib import Path; from phasescope import WindowGrid; from phasescope.backends import Planted; "
        "from phasescope.protocols import PrefixPadding; from phasescope.running.runner import Condition, run; "
        "run([Condition('bad', Planted(grid=WindowGrid(8, 8), curve=(0.9,) * 7 + (0.2,), seed=1), "
        "PrefixPadding(pairs=8, questions=8, contexts=12))], Path('run'), seed=0)"
    )
    run(python, "-c", made, cwd=tmp_path)
    assert "phase-sensitive" in run(phasescope, "report", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
