"""All commands by name; a command's own module is imported when it runs."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..errors import PhasescopeError, hide_passwords, remedy
from . import CLOSED_PIPE, WORDS
from .interrupt import INTERRUPTED, message
from .terminal import Terminal, say

BUG = 70
"""As sysexits names it; 1 would accuse an engine, in `check`."""


OLD = {"--arm": "--condition"}
"""What version 0.1 called an option."""


class Command(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    home: str
    help: str
    panel: str


COMMANDS = {
    "demo": Command("demo", "Measure the shipped models, write a report, and name it.", "Measure"),
    "inspect": Command(
        "inspect", "Say which token grids a checkpoint has, before anything is run.", "Measure"
    ),
    "probe": Command("probe", "Ask a server what it can do for a measurement.", "Measure"),
    "measure": Command("measure", "Ask models every question at every residue; log the answers.", "Measure"),
    "sweep": Command("sweep", "Ask your own prompts with 0, 1, 2, … pad tokens put in.", "Measure"),
    "report": Command("report", "Analyse runs, and write a page and data; needs no torch.", "Measure"),
    "compare": Command("compare", "Hold runs against a baseline, trial by trial; a gate for CI.", "Measure"),
    "check": Command("check", "Is it the engine? Feed the same tokens in every way it offers.", "Explain"),
    "explain": Command(
        "explain", "Say which heads serve which phases, and which phases no head serves.", "Explain"
    ),
    "audit": Command("audit", "Count the phases that a benchmark visits, and what it could hide.", "Explain"),
    "mitigate": Command("mitigate", "Ask new prompts with and without votes and pads.", "Mitigate"),
    "pack": Command(
        "pack", "Put neutral tokens between records so that keys stand on strong phases.", "Mitigate"
    ),
    "warn": Command("pack", "Say which marked facts of a prompt stand on weak phases.", "Mitigate"),
    "corpus": Command("corpus", "Tokenise text once and pack it, for training.", "Train"),
    "train": Command("train", "Train a Qwen3 with a compressed KV cache on records, text, or both.", "Train"),
    "list": Command(
        "catalog", "List the zoo's models, compressors, protocols, backends and engines.", "Train"
    ),
}
"""In the order in which the help lists them."""


class Commands(TyperGroup):
    """A group that knows its commands by name and imports one when it is to run."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in with the help's line; `resolve_command` brings the command itself."""
        if cmd_name not in COMMANDS:
            return None
        known = COMMANDS[cmd_name]
        return TyperCommand(cmd_name, help=known.help, rich_help_panel=known.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is named first, imported."""
        self.commands = {name: self.get_command(ctx, name) for name in COMMANDS}  # for suggestions
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(name or ""), rest


def load(name: str) -> Any:
    """A command as it is parsed and called."""
    known = COMMANDS[name]
    module = import_module(f"{__package__}.{known.home}")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    function = getattr(module, name if name != "list" else "list_names")
    alone.command(
        name, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_examples(module, name)
    )(function)
    return typer.main.get_command(alone)


def _examples(module: Any, name: str) -> str | None:
    examples = getattr(module, "EXAMPLES", {}).get(name)
    if not examples:
        return None
    return "\n\n".join(["[bold]Examples[/bold]", *(f"phasescope {name} {one}" for one in examples)])


app = typer.Typer(
    cls=Commands,
    help="Measure, explain and remove phase sensitivity in long-context language models.",
    epilog="phasescope COMMAND --help says more of each. Start with: phasescope demo",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"phasescope {__version__}")
        raise typer.Exit


@app.callback()
def everywhere(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Measure, explain and remove phase sensitivity in long-context language models."""


def called(arguments: list[str]) -> Any:
    """Parse and run; errors come as they are."""
    WORDS.set(tuple(arguments))
    arguments = [OLD.get(word, word) for word in arguments]
    return app(arguments or ["--help"], standalone_mode=False, prog_name="phasescope")


def perform(arguments: list[str]) -> int:
    """Parse and run; every error is one line on the error stream and an exit code."""
    console = Terminal(stderr=True, soft_wrap=True)

    def fail(text: str) -> None:
        console.print(f"phasescope: {hide_passwords(text)}")

    try:
        code = called(arguments)
        if code == INTERRUPTED:  # typer's word for it, without one of its own
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        broken = isinstance(end.__context__, BrokenPipeError)
        return CLOSED_PIPE if broken else end.code if isinstance(end.code, int) else 0
    except typer.TyperException as error:
        # The box that typer draws is several lines; a mistake is one line here.
        fail(f"{_mistake(error)}; see --help")
        return 2
    except PhasescopeError as error:
        fail(str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        console.print(message(arguments))
        return INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}; {remedy(error)}")
        return 2
    except Exception as error:
        if os.environ.get("PHASESCOPE_DEBUG"):
            raise
        if _out_of_memory(error):
            fail(
                "this machine has too little memory for what was asked; take a smaller model, fewer rows "
                "or shorter contexts"
            )
            return 2
        said = " ".join(f"{type(error).__name__}: {error}".split())
        fail(f"{said}; this is a bug, PHASESCOPE_DEBUG=1 shows where it happened")
        return BUG


def _mistake(error: typer.TyperException) -> str:
    """What typer says of a mistake, in one line, and what was perhaps meant."""
    if near := getattr(error, "possibilities", None):
        return f"{error.message.rstrip('.')}; did you mean {near[0]}?"
    return " ".join(error.format_message().split()).rstrip(".")


def _out_of_memory(error: Exception) -> bool:
    """Python's, torch's on an accelerator, and torch's on a CPU, which has no class of its own."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)
