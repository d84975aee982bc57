"""Run a command within bounds of time and memory, and say what is wrong with how it ended."""

from __future__ import annotations

import contextlib
import io
import resource
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from phasescope.cli import run

SECONDS = 20.0
"""No case may take longer, on a busy machine."""
MEMORY = 4 * 2**30
"""Nor more bytes than the process has before it."""


class TooLongError(BaseException):
    """The command ran out of time: no `Exception`, so that no handler of the command takes it for one of its own."""


def fault(words: Sequence[str], cwd: Path) -> str | None:
    """What is wrong with how a command ends; None where it says in one line what is wrong with its input."""
    out, error = io.StringIO(), io.StringIO()
    start = time.process_time()
    try:
        with (
            _bounded(),
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            code = run(words)
    except TooLongError:
        return f"took longer than {SECONDS:g} s"
    except BaseException as wrong:  # a panic of Rust is one
        return f"{type(wrong).__name__}: {wrong}"[:500]
    said = error.getvalue()
    if code not in ((0, 1, 2) if words[0] == "check" else (0, 2)):
        return f"exit code {code}: {said[-500:]}"
    for word in ("this is a bug", "Traceback", "too little memory"):
        if word in said + out.getvalue():
            return said[-500:]
    if code == 2 and not said.strip():
        return "exit code 2 without a word"
    if time.process_time() - start > SECONDS:
        return f"took {time.process_time() - start:.0f} s"
    return None


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TooLongError

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
