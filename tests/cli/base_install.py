"""The command line where the packages of the extras cannot be imported, as in a base install.

One process imports the command line and runs each command in a fork of itself: what one command imports or sets, no
other sees, and nothing is imported twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HEAVY = ("torch", "transformers", "accelerate", "safetensors", "huggingface_hub")
BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
SCRIPT = BLOCKER + "from phasescope.cli import main\nmain()\n"
SERVING = (
    BLOCKER
    + """
import json, os, tempfile
from phasescope.cli import run

for line in sys.stdin:
    asked = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        child = os.fork()
        if not child:
            code = 99
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(error.fileno(), 2)
                os.chdir(asked["cwd"])
                os.environ.update(asked["environment"])
                code = run(asked["words"])
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        error.seek(0)
        texts = [file.read().decode() for file in (out, error)]
    print(json.dumps({"code": code, "out": texts[0], "error": texts[1]}), flush=True)
"""
)


class BaseInstall:
    """Runs commands in forks of a process that has no package of an extra."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ended(self, *words: object, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a command."""
        asked = {
            "words": [str(word) for word in words],
            "cwd": str(cwd or Path.cwd()),
            "environment": {"OPENAI_API_KEY": "", **environment},
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told["code"], told["out"], told["error"]

    def __call__(self, *words: object, code: int = 0, cwd: Path | None = None, **environment: str) -> str:
        """Run a command and return what it printed: standard output, or standard error where it is to fail."""
        left, out, error = self.ended(*words, cwd=cwd, **environment)
        assert left == code, out + error
        assert "Traceback" not in error
        return out if code == 0 else error


@contextmanager
def serving() -> Iterator[BaseInstall]:
    """A base install, for as long as the block lasts."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with process:
        try:
            yield BaseInstall(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=20)
