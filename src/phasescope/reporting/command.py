"""The command lines that lead to a result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..auditing.run import Settings
from ..errors import plain
from ..runs import RunDescription


def report_commands(runs: Mapping[str, RunDescription], out: str, seed: int, draws: int) -> list[str]:
    """Each run's own command, then the `report`; folders are named as they are called, not where they lie."""
    folders = [f"runs/{label}" for label in runs]
    commands = [_of_run(run, folder) for run, folder in zip(runs.values(), folders, strict=True)]
    shared = None if len(runs) == 1 else f"runs/{out}"
    return [*commands, _line("report", folders, {"out": shared, "seed": seed, "draws": draws})]


def _of_run(run: RunDescription, folder: str) -> str:
    """The command line that made a run, or why there is none."""
    if run.command:
        return run.command
    where = f"# {plain(folder, 200)}: this run"
    if run.format == 1:
        return f"{where} does not record its command; it was written by version 0.1"
    return f"{where} was measured from Python, under the conditions in its run.json"


def audit_command(settings: Settings) -> str:
    """A command line that makes the same audit; a tokenizer is named by its folder only."""
    locator = settings.locator
    options = {
        "format": settings.format or None,
        "tokenizer": None if locator.tokenizer is None else locator.tokenizer.name,
        **settings.columns,
        "find": locator.find or None,
        "occurrence": None if locator.occurrence == "only" else locator.occurrence,
        "chat": locator.chat,
        "bos": locator.bos,
        "offset": locator.offset or None,
        "stride": settings.chosen,
        "bar": f"{settings.bar:g}",
        "seed": settings.seed,
        "draws": settings.draws,
        "accuracy": None if settings.accuracy is None else f"{settings.accuracy:g}",
    }
    return _line("audit", [settings.source], options)


def _line(command: str, arguments: Sequence[str], options: Mapping[str, Any]) -> str:
    """A command line; None and False are left out, True is an option alone, and a list repeats it."""
    words = ["phasescope", command, *arguments]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                words += [option, str(one)]
    return shlex.join(words)
