"""The command `phasescope`. Nothing is imported here before Ctrl-C is in good hands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar

from .interrupt import end_on_interrupt

WORDS: ContextVar[Sequence[str]] = ContextVar("words", default=())
"""What the command that is running was given."""
CLOSED_PIPE = 141
"""What a shell reports of a program whose reader has gone."""


def main() -> None:
    """Run the command line of this process."""
    arguments = sys.argv[1:]
    end_on_interrupt(arguments)
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = CLOSED_PIPE
    if code == CLOSED_PIPE:
        sys.stdout = None  # Python would complain when it flushes for the last time
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command in this process.

    Args:
        arguments: the words after `phasescope`.

    Returns:
        the exit code: 0 when done, 1 for an engine at fault (`check`), 2 on bad input, 130 when interrupted, 141 when
        nobody reads the output any more, 70 on a bug of ours.
    """
    if list(arguments) == ["--version"]:
        from .. import __version__

        print(f"phasescope {__version__}")
        return 0
    from .commands import perform

    return perform(list(arguments))
