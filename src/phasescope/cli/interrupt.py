"""Ctrl-C at any moment, during imports and long computations too: one line, exit code 130, and nothing left behind.

Run files are written whole or appended in whole lines, so a process may end at any moment, and the system releases
its locks. Python runs a signal's handler between two steps of its main thread, which may be seconds away; therefore a
thread waits for the signal as well.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence

INTERRUPTED = 130
RESUMES = ("demo", "explain", "measure", "mitigate", "sweep", "train")
FLUSHING = 0.2
"""Seconds that what was printed has to reach its reader."""


def message(arguments: Sequence[str]) -> str:
    """What is said of an interrupted command."""
    resumes = any(word in RESUMES for word in arguments[:1])
    return "phasescope: interrupted" + ("; the same command goes on from here" if resumes else "")


def end_on_interrupt(arguments: Sequence[str]) -> None:
    """End this process on Ctrl-C, unless whoever started it has it ignore that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    once = threading.Lock()

    def end() -> None:
        if once.acquire(blocking=False):
            _end(message(arguments))

    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGINT, lambda number, frame: end())
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)

    def wait() -> None:
        while os.read(woken, 1) != bytes([signal.SIGINT]):
            pass
        end()

    threading.Thread(target=wait, name="interrupt", daemon=True).start()


def _end(line: str) -> None:
    """Say it, end the workers, and go, without waiting for anything that may be under way."""
    cleared = "\r\033[K\033[?25h" if os.isatty(2) else ""  # a progress bar hides the cursor
    os.write(2, f"{cleared}{line}\n".encode())
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        for child in processes.active_children():
            child.kill()
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(FLUSHING)
    os._exit(INTERRUPTED)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        return
