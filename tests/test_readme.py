"""The README's snippets run as they stand."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("snippet", PYTHON, ids=lambda snippet: snippet.splitlines()[-1].strip())
def test_a_python_snippet_runs(tmp_path, snippet):
    """Exit code 0 and something printed."""
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
def test_the_commands_run_in_order(tmp_path):
    """As written, except that training takes 3 steps instead of thousands."""
    assert len(COMMANDS) == 4
    for command in COMMANDS:
        words = shlex.split(re.sub(r"--steps \d+", "--steps 3", command))
        assert words[0] == "phasescope"
        done = subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=ENVIRONMENT,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert (tmp_path / "runs" / "first" / "report.html").exists()
