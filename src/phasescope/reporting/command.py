"""The command lines that lead to a result: as the run recorded them, or made again from what it says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..auditing.run import Settings
from ..runs import ConditionDescription, ModelInfo, RunDescription
from ..statistics.analyses import SWEEP

SIZES = ("prompt_tokens", "pairs", "contexts", "questions", "residues", "groups", "value_words", "chat")
"""Settings of protocols that are options of `measure`."""
PROMPTS = ("mark", "second_mark", "source_mark", "system", "chat")
"""Settings that are options of `sweep`."""


def report_commands(runs: Mapping[str, RunDescription], out: str, seed: int, draws: int) -> list[str]:
    """One command per run, then the `report`; folders are named as they are called, not where they lie."""
    folders = [f"runs/{label}" for label in runs]
    commands = [run_command(run, folder) for run, folder in zip(runs.values(), folders, strict=True)]
    shared = None if len(runs) == 1 else f"runs/{out}"
    return [*commands, _line("report", folders, {"out": shared, "seed": seed, "draws": draws})]


def run_command(run: RunDescription, folder: str) -> str:
    """The command line that made a run: its own, where it recorded one."""
    if run.command:
        return run.command
    conditions = run.conditions
    kinds = {condition.backend.backend for condition in conditions}
    if conditions[0].protocol.name == SWEEP:
        return sweep_command(conditions, folder)
    if kinds not in ({"transformers"}, {"openai"}):
        return f"# {folder} was measured from Python: phasescope.running.runner.run with the conditions in its run.json"
    backend, settings = conditions[0].backend, conditions[0].protocol.settings
    server = kinds == {"openai"}
    options: dict[str, Any] = {
        "out": folder,
        **(_server(backend) if server else {}),
        "protocol": list(dict.fromkeys(condition.protocol.name for condition in conditions)),
        **{name: settings.get(name) for name in SIZES},
        "seed": run.seed,
        **({} if server else {"device": backend.device, "threads": backend.threads}),
    }
    models = dict.fromkeys(condition.backend.model for condition in conditions)
    return _line("measure", list(models), options)


def _server(backend: ModelInfo) -> dict[str, Any]:
    """The options of a server, whose address no run knows."""
    return {
        "backend": "openai",
        "base_url": "URL",
        "tokenizer": backend.tokenizer.name if backend.tokenizer else None,
        "prefix_cache": backend.prefix_cache == "kept warm",
        "unverified": "nothing" in backend.asked.values(),
        "top_logprobs": backend.top_logprobs,
        "grid": None if backend.grids is None else list(map(str, backend.grids)) or ["none"],
    }


def sweep_command(conditions: Sequence[ConditionDescription], folder: str) -> str:
    """The command line that sweeps these conditions, with prompts by name; they are the user's own files."""
    prompts, settings = conditions[0].protocol.prompts, conditions[0].protocol.settings
    lengths, scorer = settings.get("lengths"), settings.get("scorer")
    models: dict[str, list[str]] = {"model": [], "control": []}
    for condition in conditions:
        models["control" if condition.backend.grids == () else "model"].append(condition.backend.model)
    given = {(prompt.expected, *prompt.rival) for prompt in prompts}
    expected, *rivals = given.pop() if len(given) == 1 else ("",)  # else the file says it for each
    options = {
        **models,
        "lengths": ",".join(map(str, lengths)) if isinstance(lengths, list) else None,
        "place": settings.get("placement"),
        "family": settings.get("families"),
        "expected": expected or None,
        "rival": rivals,
        **{name: settings.get(name) for name in PROMPTS},
        "scorer": scorer.get("given") if isinstance(scorer, dict) else None,
        "tokens": settings.get("new_tokens") if scorer else None,
        "out": folder,
    }
    files = dict.fromkeys(prompt.name.rpartition(":")[0] or prompt.name for prompt in prompts)
    return _line("sweep", list(files), options)


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
