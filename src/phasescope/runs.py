"""What a run folder holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UsageError
from .files import read_json, read_log
from .records import Dropped, Observation


@dataclass(frozen=True)
class Run:
    """What a run folder holds.

    Attributes:
        description: the content of run.json.
        observations: per condition, in the order of the description, what has been observed so far.
        dropped: per condition, the trials that could not be observed.
    """

    description: dict[str, Any]
    observations: dict[str, list[Observation]]
    dropped: dict[str, list[Dropped]]


def read_run(folder: Path) -> Run:
    """Read a run folder, finished or not.

    Raises:
        UsageError: if the folder holds no run, or an observation belongs to none of its conditions.
        BrokenRecordError: if a file is damaged.
    """
    if not (folder / "run.json").is_file():
        raise UsageError(f"{folder} holds no run.json; give a run folder that `measure` wrote")
    description = read_json(folder / "run.json")
    names = [condition["name"] for condition in description["conditions"]]
    observations: dict[str, list[Observation]] = {name: [] for name in names}
    dropped: dict[str, list[Dropped]] = {name: [] for name in names}
    for line in read_log(folder / "observations.jsonl"):
        if line.condition not in observations:
            raise UsageError(
                f"{folder}/observations.jsonl names condition {line.condition!r}, run.json {sorted(observations)}"
            )
        if isinstance(line, Observation):
            observations[line.condition].append(line)
        else:
            dropped[line.condition].append(line)
    return Run(description, observations, dropped)
