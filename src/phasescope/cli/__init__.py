"""The command `phasescope`: arguments in, one line out on a mistake, and no logic of its own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from .. import __version__
from ..errors import PhasescopeError
from . import (
    audit,
    catalog,
    check,
    corpus,
    demo,
    explain,
    inspect,
    measure,
    mitigate,
    pack,
    probe,
    report,
    sweep,
    train,
)

app = typer.Typer(
    help="Measure, explain and remove phase sensitivity in long-context language models.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


SECRET = re.compile(r"[^\s/'\"@]+:[^\s/'\"@]+@(?=[\w\[.])")
RESUMES = ("demo", "explain", "measure", "mitigate", "sweep", "train")
INTERRUPTED = 130
BUG = 70  # as sysexits names it; 1 would accuse an engine, in `check`


def _print_version(asked: bool) -> None:
    if asked:
        print(f"phasescope {__version__}")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Measure, explain and remove phase sensitivity in long-context language models."""


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "inspect": inspect.inspect,
    "probe": probe.probe,
    "measure": measure.measure,
    "sweep": sweep.sweep,
    "check": check.check,
    "report": report.report,
    "explain": explain.explain,
    "audit": audit.audit,
    "mitigate": mitigate.mitigate,
    "pack": pack.pack,
    "warn": pack.warn,
    "corpus": corpus.corpus,
    "train": train.train,
    "list": catalog.list_names,
}
"""In the order in which the help lists them."""
for name, command in COMMANDS.items():
    app.command(name)(command)


def _say(console: Console, text: str) -> None:
    """One line on the error stream, without a user and password that stand in an address."""
    console.print(f"phasescope: {SECRET.sub('(hidden)@', text)}")


def _out_of_memory(error: Exception) -> bool:
    """Python's, torch's on an accelerator, and torch's on a CPU, which has no class of its own."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)


def main() -> None:
    """Run the command line: exit 0 when done, 2 on bad input, 130 when interrupted, 70 on a bug of ours."""
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        if code == INTERRUPTED:  # typer's word for it, without one of its own
            raise KeyboardInterrupt
        sys.exit(code)
    except typer.TyperException as error:
        # The box that typer draws is several lines; a mistake is one line here.
        _say(console, f"{error.format_message().rstrip('.')}; see --help")
        sys.exit(2)
    except PhasescopeError as error:
        _say(console, str(error))
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        goes_on = "; the same command goes on from here" if sys.argv[1:2] and sys.argv[1] in RESUMES else ""
        _say(console, f"interrupted{goes_on}")
        sys.exit(INTERRUPTED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(console, f"{where}{error.strerror or error}; give a path that can be read and written")
        sys.exit(2)
    except Exception as error:
        if os.environ.get("PHASESCOPE_DEBUG"):
            raise
        if _out_of_memory(error):
            _say(
                console,
                "this machine has too little memory for what was asked; take a smaller model, fewer rows "
                "or shorter contexts",
            )
            sys.exit(2)
        said = " ".join(f"{type(error).__name__}: {error}".split())
        _say(console, f"{said}; this is a bug, PHASESCOPE_DEBUG=1 shows where it happened")
        sys.exit(BUG)
