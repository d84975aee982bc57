"""The command `phasescope`: arguments in, one line out on a mistake, and no logic of its own."""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console

from ..errors import PhasescopeError
from . import catalog, demo, measure, probe, report, train

app = typer.Typer(
    help="Measure, explain and remove phase sensitivity in long-context language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("measure")(measure.measure)
app.command("probe")(probe.probe)
app.command("report")(report.report)
app.command("train")(train.train)
app.command("list")(catalog.list_names)


def main() -> None:
    """Run the command line: exit 0 when done, 2 on bad input, 130 when interrupted."""
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        app()
    except PhasescopeError as error:
        console.print(f"phasescope: {error}")
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as ended:
        # typer turns an interrupt into an exit with this status, and says nothing.
        if isinstance(ended, SystemExit) and ended.code != 130:
            raise
        console.print("phasescope: interrupted; the same command goes on from here")
        sys.exit(130)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        console.print(f"phasescope: {where}{error.strerror or error}")
        sys.exit(2)
    except Exception as error:
        if os.environ.get("PHASESCOPE_DEBUG"):
            raise
        console.print(
            f"phasescope: {type(error).__name__}: {error}; this is a bug, "
            "PHASESCOPE_DEBUG=1 shows where it happened"
        )
        sys.exit(1)
