"""The command `phasescope`: arguments in, one line out on a mistake, and no logic of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.console import Console

from .. import __version__
from ..errors import PhasescopeError, hide_passwords
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
    console.print(f"phasescope: {hide_passwords(text)}")


def _out_of_memory(error: Exception) -> bool:
    """Python's, torch's on an accelerator, and torch's on a CPU, which has no class of its own."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command, in this process.

    Args:
        arguments: the words after `phasescope`.

    Returns:
        the exit code: 0 when done, 1 for an engine at fault (`check`), 2 on bad input, 130 when interrupted, 70 on a
        bug of ours.
    """
    arguments = list(arguments)
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        code = app(arguments or ["--help"], standalone_mode=False, obj=arguments)
        if code == INTERRUPTED:  # typer's word for it, without one of its own
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 0
    except typer.TyperException as error:
        # The box that typer draws is several lines; a mistake is one line here.
        _say(console, f"{error.format_message().rstrip('.')}; see --help")
        return 2
    except PhasescopeError as error:
        _say(console, str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        goes_on = "; the same command goes on from here" if arguments[:1] and arguments[0] in RESUMES else ""
        _say(console, f"interrupted{goes_on}")
        return INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(console, f"{where}{error.strerror or error}; give a path that can be read and written")
        return 2
    except Exception as error:
        if os.environ.get("PHASESCOPE_DEBUG"):
            raise
        if _out_of_memory(error):
            _say(
                console,
                "this machine has too little memory for what was asked; take a smaller model, fewer rows "
                "or shorter contexts",
            )
            return 2
        said = " ".join(f"{type(error).__name__}: {error}".split())
        _say(console, f"{said}; this is a bug, PHASESCOPE_DEBUG=1 shows where it happened")
        return BUG
