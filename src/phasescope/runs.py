"""What a run folder holds: run.json as typed records, and the observations of each condition."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AliasChoices, ConfigDict, Field, JsonValue, model_validator

from .columns import Tabular, observation_table
from .errors import UsageError, hide_passwords
from .files import read_record
from .grid import RESIDUES, WIDEST, WindowGrid, common_stride
from .logs import find_log, read_log
from .observations import Observations
from .records import Dropped, Name, Observation, Record, bounded

RUN_SCHEMA: Literal[2] = 2


Fact = Annotated[JsonValue, AfterValidator(lambda value: bounded(value, 2**63))]
"""Any JSON value with finite numbers below 2^63."""
Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class Open(Record):
    """A record that also takes facts of others (protocols and backends of other packages), as JSON values."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Fact]

    def facts(self) -> dict[str, Any]:
        """Everything that was said, as JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class TokenizerName(Record):
    """A tokenizer, by its name and a hash of its content."""

    name: Name
    digest: Name


class ModelInfo(Open):
    """What a backend said of itself.

    Attributes:
        backend: its name in the backend catalog.
        model: what a report calls it.
        grids: of the model's KV cache; empty for a model without a grid, null where they are not known.
        path: where its checkpoint was; the digest, and not the path, says which model it is.
        digest: of its weights.
        kind: the class of the model.
        tokenizer: of its prompts, where a server was given text.
        visibility: `next` where an entry is first read by the token after the one that closes its window; null where by
            the closing one, or where that is not known.
    """

    backend: Name
    model: Name
    grids: Annotated[tuple[WindowGrid, ...], Field(max_length=1024)] | None = None
    path: str | None = None
    digest: Name | None = None
    kind: Name | None = Field(default=None, alias="class")
    tokenizer: TokenizerName | None = None
    visibility: Literal["next"] | None = None
    dtype: Name | None = None
    device: Name | None = None
    threads: Count | None = None
    max_tokens: Count | None = None
    asked: dict[Name, Name] = Field(default_factory=dict)
    prefix_cache: Fact = None
    top_logprobs: Count | None = None


class TrialPlan(Record):
    """How much a protocol asks for; see `protocols.Plan`."""

    trials: Count
    prompt_tokens: Count
    prefix_tokens: Count


class SweptPrompt(Open):
    """A prompt of a padding sweep: its name, what was expected, and the texts that were compared."""

    name: Name
    expected: str = ""
    rival: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


class ProtocolDescription(Open):
    """What a protocol said of itself.

    Attributes:
        name: its name in the protocol catalog.
        moves: the coordinate that its layouts move, and that is therefore folded.
        settings: as JSON values; a tokenizer by its name and digest.
        plan: how much it asks for.
        prompts: of a padding sweep.
        comparable: whether the prompts of a sweep have their sources at comparable positions.
        dropped_families, repeating_families: of a sweep: padding that was left out and why; padding that repeats, and
            after how many tokens.
    """

    name: Name
    moves: Literal["source", "query"]
    settings: dict[Name, Fact]
    plan: TrialPlan
    prompts: tuple[SweptPrompt, ...] = ()
    comparable: bool = False
    dropped_families: dict[str, str] = Field(default_factory=dict)
    repeating_families: dict[str, Count] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _countable(self) -> Self:
        for name in ("groups", "residues"):
            value = self.settings.get(name)
            if value is not None and not (type(value) is int and 1 <= value <= WIDEST):
                raise ValueError(f"settings.{name} is {value!r:.40}; a number of layouts is 1 to {WIDEST:,}")
        return self

    @property
    def residues(self) -> int:
        """How many residues the layouts visit."""
        visited = self.settings.get("groups") or self.settings.get("residues")
        return visited if isinstance(visited, int) else RESIDUES


class ConditionDescription(Record):
    """One condition of a run: a backend under a protocol, by a name of one line that is unique in the run."""

    name: Annotated[Name, Field(min_length=1, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]+$")]
    protocol: ProtocolDescription
    backend: ModelInfo

    @property
    def stride(self) -> int | None:
        """The stride by which its results are folded; None without a grid, and where grids are not known."""
        return common_stride((grid.stride for grid in self.backend.grids or ()), self.protocol.residues)

    @property
    def control(self) -> bool:
        """Whether its model is known to fold nothing."""
        return self.backend.grids is not None and self.stride is None


def folds(conditions: Sequence[ConditionDescription]) -> list[int]:
    """By which stride the positions of each condition are folded, when they are read together.

    Its own stride; without one the largest among the conditions that move the same coordinate, so that a control can
    be compared with them; else as many residues as its layouts visit.
    """
    return [
        condition.stride
        or max((o.stride or 0 for o in conditions if o.protocol.moves == condition.protocol.moves), default=0)
        or condition.protocol.residues
        for condition in conditions
    ]


class RunDescription(Record):
    """The content of run.json: what was run.

    Attributes:
        format: 1 in version 0.1, which called conditions arms and kept no command.
        seed: of every draw.
        versions: of what the numbers may depend on; null for what was not installed.
        conditions: in the order in which they were asked.
        command: the user's command line or Python call, without secrets; null where it is not known.
    """

    format: Literal[1, 2] = Field(alias="schema")
    seed: Annotated[int, Field(ge=0, lt=2**64, strict=True)]
    versions: dict[Name, Name | None]
    conditions: Annotated[
        tuple[ConditionDescription, ...],
        Field(min_length=1, max_length=10_000, validation_alias=AliasChoices("conditions", "arms")),
    ]
    command: Annotated[str, Field(max_length=100_000)] | None = None

    @model_validator(mode="after")
    def _apart(self) -> Self:
        name, times = Counter(condition.name for condition in self.conditions).most_common(1)[0]
        if times > 1:
            raise ValueError(f"{times} conditions are named {name!r}; each needs a name of its own")
        return self

    @classmethod
    def now(cls, conditions: Sequence[ConditionDescription], seed: int, command: str | None = None) -> Self:
        """The description of a run that begins here and now.

        Args:
            conditions: in the order in which they will be asked.
            seed: of every draw.
            command: that the user gave; passwords in addresses are left out.

        Raises:
            UsageError: if names occur twice, or the seed is negative or has more than 64 bits.
        """
        return cls.checked(
            schema=RUN_SCHEMA,
            seed=seed,
            versions=_versions(),
            conditions=tuple(conditions),
            command=None if command is None else hide_passwords(command),
        )

    def facts(self) -> dict[str, Any]:
        """As in run.json: only what was said."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def condition(self, name: str) -> ConditionDescription | None:
        """The condition of that name; None if there is none."""
        return next((one for one in self.conditions if one.name == name), None)

    def difference(self, other: RunDescription) -> str | None:
        """The first fact that two runs differ in, with both values, in words; None where one can go on as the other.

        Their commands may differ, and plans, which follow from the settings; a model that lies elsewhere now is the
        same as long as its digest is.
        """
        return next(_differences(self.facts(), other.facts(), ""), None)


REPORTED = 10_000
"""Trials that are read between two reports."""
WAITING = 500
"""Trials that are read before they become columns; with thousands the garbage collector takes a quarter of the time."""
_NOT_COMPARED = {"schema", "command", "plan", "path"}


def _differences(there: Any, here: Any, key: str) -> Iterator[str]:
    """Where two JSON values differ: the dotted key and both values, depth first."""
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here} - _NOT_COMPARED):
            yield from _differences(there.get(name), here.get(name), f"{key}.{name}".lstrip("."))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for index, (old, new) in enumerate(zip(there, here, strict=True)):
            yield from _differences(old, new, f"{key}[{index}]")
    elif there != here:
        yield f"{key} = {_short(there)}, this run {_short(here)}"


def _short(value: Any) -> str:
    """A value in a line: conditions by their names."""
    if isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value):
        return ", ".join(item["name"] for item in value)
    return repr(value)


def _versions() -> dict[str, str | None]:
    """What the numbers may depend on; null for what is not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in ("phasescope", "numpy", "torch", "transformers"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


@dataclass(frozen=True, repr=False)
class Run(Tabular):
    """What a run folder holds.

    Attributes:
        description: the content of run.json.
        observations: per condition, in the order of the description, what has been observed so far.
        dropped: per condition, the trials that could not be observed.
        folder: where it was read from.
    """

    description: RunDescription
    observations: dict[str, Observations]
    dropped: dict[str, list[Dropped]]
    folder: Path

    def to_arrow(self) -> Any:
        """A `pyarrow.Table` of all observations, one row each."""
        return observation_table(list(self.observations.values()))

    def __repr__(self) -> str:
        """Short, as a notebook shows it: each condition with how many of its trials were answered."""
        told = [
            f"{one.name[:40]} {len(self.observations[one.name]):,}/{one.protocol.plan.trials:,}"
            for one in self.description.conditions[:8]
        ]
        more = len(self.description.conditions) - len(told)
        return f"Run(seed={self.description.seed}: {', '.join(told)}{f', … {more} more' if more else ''})"


def read_description(folder: Path) -> RunDescription:
    """Read run.json.

    Raises:
        UsageError: if the folder holds no run.
        BrokenRecordError: if run.json is damaged.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise UsageError(f"{folder} holds no run.json; give a run folder that `measure` wrote")
    return read_record(path, RunDescription)


def _keep(waiting: dict[str, list[Observation]], observations: dict[str, Observations]) -> None:
    """Move what was read to its columns, many at a time."""
    for name, rows in waiting.items():
        observations[name].extend(rows)
        rows.clear()


def read_run(folder: str | Path, report: Callable[[int, int], None] = lambda done, planned: None) -> Run:
    """Read a run folder, finished or not.

    Args:
        folder: that `measure` wrote.
        report: told the trials that were read and those that were planned, now and then.

    Raises:
        UsageError: if the folder holds no run, or an observation belongs to none of its conditions.
        BrokenRecordError: if a file is damaged.
    """
    folder = Path(folder)
    description = read_description(folder)
    names = [condition.name for condition in description.conditions]
    observations = {name: Observations() for name in names}
    waiting: dict[str, list[Observation]] = {name: [] for name in names}
    dropped: dict[str, list[Dropped]] = {name: [] for name in names}
    log = find_log(folder)
    planned = sum(condition.protocol.plan.trials for condition in description.conditions)
    for done, line in enumerate(read_log(log)):
        if done % REPORTED == 0:
            report(done, max(done, planned))
        if done % WAITING == 0:
            _keep(waiting, observations)
        if line.condition not in observations:
            raise UsageError(
                f"{log} names condition {line.condition[:200]!r}, run.json {', '.join(sorted(names))[:1000]}"
            )
        if isinstance(line, Observation):
            waiting[line.condition].append(line)
        else:
            dropped[line.condition].append(line)
    _keep(waiting, observations)
    return Run(description, observations, dropped, folder)
