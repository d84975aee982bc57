"""The command line in this process: no command pays for the imports again."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

from phasescope.cli import run


def phasescope(*words: object, code: int = 0, cwd: Path | None = None, **environment: str) -> str:
    """Run a command and return what it printed: standard output, or standard error where it is to fail."""
    out, error = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
    ):
        left = run([str(word) for word in words])
    assert left == code, out.getvalue() + error.getvalue()
    assert "Traceback" not in error.getvalue()
    return out.getvalue() if code == 0 else error.getvalue()
