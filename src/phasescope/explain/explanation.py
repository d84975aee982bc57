"""From a run to its explanation: heads taken away, gates read, rules applied, everything logged and resumable.

settings.json       what is explained, as resolved: written first, and compared on resume
observations.jsonl  the same trials under every arm (untouched, without each unit, with rolled gates)
explain.json        what follows from it; the same settings give the same bytes
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import zoo
from ..backends.transformers import TransformersBackend
from ..catalog import PROTOCOLS
from ..errors import UsageError
from ..grid import WindowGrid
from ..protocols import Batch, Protocol
from ..records import (
    SCHEMA,
    Dropped,
    Observation,
    ObservationLog,
    Reply,
    Trial,
    dump_json,
    read_json,
    write_atomic,
)
from ..runner import Run, read_run
from ..tokens import Tokenizer
from .ablation import Ablation, first_token
from .boundary import rolls_of
from .findings import explained
from .gates import GateTally
from .probe import gate_grids, has_bias, priors, rolled
from .seam import Seam, find_seams
from .units import BASE, Branch, Mode, Unit, Where, every_head, latent_heads, together

Report = Callable[[int, int], None]
DEFAULT_BLOCKS = 200
REFERENCE_CONTEXTS = 8
"""Contexts of the reference prompts: over them heads' outputs are averaged, and gates are read."""
REFERENCE_PROMPTS = 64
"""The fewest reference prompts, for protocols that ask one question a context."""
UNFOLDED = 8
"""Modulus of the phases for a model without a grid, unless another is given."""
LOG_TOLERANCE = 1e-2
"""Nats by which a log-probability may differ from the run's own; more is another model, or another precision."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is to be explained, and how.

    Attributes:
        arm: an arm of the run; by default the only one whose cache is folded.
        model: zoo name or folder of its checkpoint, where the run does not say.
        blocks: questions, each at all its layouts; at most those of the run.
        mode: what stands in the place of a head's output.
        branch: what is taken from a head: everything, its entries or its raw tokens.
        where: whether it is taken at the last position alone, or at every one.
        together: units to be taken away at once, joined by +.
        rolls: whether gates are rolled over their slots.
        fold: modulus of the phases; by default the model's stride.
        seed: of the reference prompts and the permutations; the trials are the run's own.
        draws: permutations per test.
        device: where torch puts the model.
        trust_remote_code: run Python code that the checkpoint brings along.
    """

    arm: str | None = None
    model: str | None = None
    blocks: int | None = None
    mode: Mode = "mean"
    branch: Branch = "all"
    where: Where = "last"
    together: tuple[str, ...] = ()
    rolls: bool = True
    fold: int | None = None
    seed: int = 0
    draws: int = 2000
    device: str = "cpu"
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What an explanation will take, before it starts.

    Attributes:
        units: how many are taken away, one at a time.
        rolls: how many times gates are rolled.
        contexts, blocks, layouts: what is asked.
        prompt_tokens: tokens of context that are read once for all units, and once more for each roll.
        last_tokens: last tokens that are read again from the layer of a unit on.
        seconds: by the run's own speed; None where it does not say.
    """

    units: int
    rolls: int
    contexts: int
    blocks: int
    layouts: int
    prompt_tokens: int
    last_tokens: int
    seconds: float | None

    def words(self) -> str:
        """One line."""
        time = (
            "" if self.seconds is None else f", about {max(1, round(self.seconds))} s by the run's own speed"
        )
        return (
            f"{self.units} units and {self.rolls} rolls over {self.blocks} blocks at {self.layouts} layouts in "
            f"{self.contexts} contexts: {self.prompt_tokens:,} tokens of context, {self.last_tokens:,} last tokens "
            f"again{time}"
        )


class Explanation:
    """One arm of a run, ready to be explained.

    Args:
        folder: of the run.
        settings: what and how.
        out: where to write; by default `explain/ARM` in the run.

    Raises:
        UsageError: if the run, the arm, the model or the settings cannot be explained, in one line.
    """

    def __init__(self, folder: Path, settings: Settings, out: Path | None = None) -> None:
        self.folder, self.settings = folder, settings
        run = read_run(folder)
        self.arm, self.described = _chosen(run, settings.arm, folder)
        self.observed = run.observations[self.arm]
        if not self.observed:
            raise UsageError(f"arm {self.arm} of {folder} has answered no trial; measure it first")
        path = _checkpoint(self.described["backend"], settings.model, folder)
        self.backend = TransformersBackend.load(
            path,
            name=self.described["backend"]["model"],
            dtype=self.described["backend"]["dtype"],
            device=settings.device,
            trust_remote_code=settings.trust_remote_code,
        )
        told = self.backend.describe()
        if told["digest"] != self.described["backend"]["digest"]:
            raise UsageError(
                f"{path} holds other weights than {folder} was measured with; give them with --model"
            )
        self.protocol = _protocol(self.described["protocol"], path)
        self.run_seed = int(run.description["seed"])
        own = _stride(self.described["backend"]["grids"])
        self.stride = settings.fold or own or UNFOLDED
        if self.stride < 2:
            raise UsageError(f"fold {self.stride}: phases are compared from 2 on")
        if own is not None and self.stride % own:
            raise UsageError(
                f"fold {self.stride}: the model's grids repeat every {own} tokens; leave --fold out, or give a multiple"
            )
        self.seams = find_seams(self.backend.model)
        self.units = self._units()
        self.rolls = self._rolls() if settings.rolls else []
        self.engine = self._engine(self.units)
        self.batches = self._batches()
        self.out = out or folder / "explain" / _slug(self.arm, settings)

    @property
    def arms(self) -> list[str]:
        """Everything that each trial is answered as."""
        return [BASE, *(unit.name for unit in self.units), *(roll_name(slots) for slots in self.rolls)]

    def cost(self) -> Cost:
        """What it will take: contexts are read once for all units, and once for each roll."""
        trials = [trial for batch in self.batches for trial in batch]
        layouts = {(t.cluster, t.layout): len(t.prompt_ids) for t in trials}
        tokens = sum(layouts.values())
        reference = tokens * REFERENCE_CONTEXTS // max(1, len(self.batches))
        anew = len(self.units) if self.settings.where == "everywhere" else 0
        read = tokens * (1 + len(self.rolls) + anew) + reference
        seconds = None
        if (speed := _tokens_per_second(self.folder, self.arm)) is not None:
            seconds = (read + len(trials) * (1 + len(self.units) + len(self.rolls))) / speed
        return Cost(
            units=len(self.units),
            rolls=len(self.rolls),
            contexts=len(self.batches),
            blocks=len({trial.block for trial in trials}),
            layouts=len({trial.layout for trial in trials}),
            prompt_tokens=read,
            last_tokens=len(trials) * len(self.units),
            seconds=seconds,
        )

    def run(self, report: Report = lambda done, total: None) -> Path:
        """Explain, or go on where an interrupted explanation stopped.

        Args:
            report: told the answered trials, and all.

        Returns:
            the path of explain.json.

        Raises:
            UsageError: if the folder holds another explanation, or the model does not answer as in the run.
        """
        self._settle()
        log = ObservationLog(self.out / "observations.jsonl")
        sizes = [len(batch) * len(self.arms) for batch in self.batches]
        kept = log.resume(sizes)
        done, total = 0, sum(sizes)
        report(0, total)
        tally, engine = GateTally(self.stride), self.engine
        for batch in self._reference():
            engine.learn(batch, tally.add)
        for batch, size in zip(self.batches, sizes, strict=True):
            known = kept[done : done + size]
            if known:
                self._check(known, batch, log.path)
            else:
                lines = list(self._lines(batch, engine))
                self._compare(lines[: len(batch)])
                log.append(lines)
            done += size
            report(done, total)
        found = explained(
            log.path,
            arm=self.arm,
            run=self.folder.resolve().name,
            model=self.backend.name,
            protocol=self.protocol.name,
            coordinate=self.protocol.moves,
            stride=self.stride,
            observed=self.observed,
            units=self.units,
            rolls=[(slots, roll_name(slots)) for slots in self.rolls],
            gates=tally.profiles(priors(self.seams)),
            account=tally.account(),
            grids={seam.shape.layer: grids for seam in self.seams if (grids := _grids_of(seam))},
            raw=self._raw(),
            rng=np.random.default_rng([self.settings.seed, *self.arm.encode()]),
            draws=self.settings.draws,
            facts=self._facts(engine),
        )
        write_atomic(self.out / "explain.json", dump_json(found))
        return self.out / "explain.json"

    def _facts(self, engine: Ablation) -> dict[str, Any]:
        """How it was done, for the page."""
        return {
            "mode": self.settings.mode,
            "branch": self.settings.branch,
            "where": self.settings.where,
            "seed": self.settings.seed,
            "draws": self.settings.draws,
            "reference_prompts": engine.bank.prompts,
            "verified": {name: float(f"{value:.3g}") for name, value in engine.verified.items()},
            "class": self.described["backend"]["class"],
        }

    def _units(self) -> list[Unit]:
        shapes = [seam.shape for seam in self.seams]
        latent = self.settings.branch == "all" and all(seam.latent for seam in self.seams)
        units = latent_heads(shapes) if latent else every_head(shapes, self.settings.branch)
        return units + [together(names, units) for names in self.settings.together]

    def _rolls(self) -> list[int]:
        if not has_bias(self.seams):
            return []
        widths = {grid.width for seam in self.seams for grid in _grids_of(seam)}
        return rolls_of(min(widths)) if widths else []

    def _raw(self) -> int:
        """How many of the last tokens every query reads raw."""
        plan = getattr(self.backend.model.config, "plan", None)
        return int(getattr(plan, "tail", 0) or getattr(self.backend.model.config, "sliding_window", 0) or 0)

    def _batches(self) -> list[Batch]:
        """The run's own contexts, from its first on, until there are enough blocks."""
        blocks = self.settings.blocks
        wanted = DEFAULT_BLOCKS if blocks is None else blocks
        if wanted < 1:
            raise UsageError(f"blocks is {wanted}; give at least 1")
        asked = {(trial.cluster, trial.trial) for trial in self.observed}
        chosen: list[Batch] = []
        count = 0
        for batch in self._drawn(self.protocol, [self.run_seed, *self.protocol.name.encode()]):
            if count >= wanted:
                break
            if not all((trial.cluster, trial.digest) in asked for trial in batch):
                continue  # not answered yet, or dropped
            chosen.append(tuple(first_token(trial) for trial in batch))
            count += len({trial.block for trial in batch})
        if not chosen or (blocks is not None and count < blocks):
            raise UsageError(
                f"--blocks {wanted}: {self.folder} has answered {count} whole blocks of {self.arm}; ask for at most so "
                "many, or measure more contexts"
            )
        return chosen

    def _reference(self) -> Iterator[Batch]:
        """Contexts that are not the run's: drawn by the same protocol from another seed."""
        protocol = self.protocol
        if any(field.name == "contexts" for field in fields(protocol)):
            few = max(REFERENCE_CONTEXTS, -(-REFERENCE_PROMPTS // max(1, len(self.batches[0]))))
            protocol = replace(protocol, **{"contexts": few})
        prompts = contexts = 0
        for batch in self._drawn(protocol, [self.settings.seed, self.run_seed, *b"reference"]):
            if contexts >= REFERENCE_CONTEXTS and prompts >= REFERENCE_PROMPTS:
                return
            contexts, prompts = contexts + 1, prompts + len(batch)
            yield tuple(first_token(trial) for trial in batch)

    def _drawn(self, protocol: Protocol, seed: Sequence[int]) -> Iterator[Batch]:
        vocabulary = self.backend.vocabulary() if protocol.synthetic else None
        return islice(protocol.batches(vocabulary, np.random.default_rng(seed)), len(protocol.batch_sizes()))

    def _engine(self, units: Sequence[Unit]) -> Ablation:
        return Ablation(
            self.backend.model,
            self.seams,
            units,
            mode=self.settings.mode,
            where=self.settings.where,
            max_tokens=self.backend.max_tokens,
            name=self.backend.name,
        )

    def _lines(self, batch: Batch, engine: Ablation) -> Iterator[Observation]:
        """Every arm's answers to one context, arms outermost."""
        answered = engine.ask(batch)
        plain = self._engine([])
        for slots in self.rolls:
            with rolled(self.seams, slots):
                answered[roll_name(slots)] = plain.ask(batch)[BASE]
        for arm in self.arms:
            for trial, reply in zip(batch, answered[arm], strict=True):
                yield _observation(self.protocol, trial, reply, arm)

    def _settle(self) -> None:
        """Write settings.json, or compare with the one that is there."""
        settings = {
            name: value
            for name, value in asdict(self.settings).items()
            if name not in ("model", "draws", "device", "trust_remote_code")
        }
        given = {
            **settings,
            "schema": SCHEMA,
            "arm": self.arm,
            "blocks": len({trial.block for batch in self.batches for trial in batch}),
            "digest": self.described["backend"]["digest"],
            "protocol": {k: v for k, v in self.described["protocol"].items() if k != "plan"},
            "run_seed": self.run_seed,
            "arms": self.arms,
            "threads": torch.get_num_threads(),
        }
        given = json.loads(dump_json(given))
        path = self.out / "settings.json"
        if not path.exists():
            write_atomic(path, dump_json(given))
            return
        there = read_json(path)
        for key in sorted({*there, *given}):
            if there.get(key) != given.get(key):
                raise UsageError(
                    f"{path} has {key} = {there.get(key)!r}, this explanation {given.get(key)!r}; resume with "
                    "the same, or use another --out"
                )

    def _check(self, known: Sequence[Observation | Dropped], batch: Batch, path: Path) -> None:
        plan = ((arm, trial.digest) for arm in self.arms for trial in batch)
        for line, planned in zip(known, plan, strict=True):
            if (line.arm, line.trial) != planned:
                raise UsageError(
                    f"{path} holds {(line.arm, line.trial)}, the plan has {planned}; use another --out"
                )

    def _compare(self, lines: Sequence[Observation]) -> None:
        """The untouched model must answer as it did in the run."""
        told = {o.trial: o.logprob for o in self.observed}
        gaps = [
            abs(line.logprob - there)
            for line in lines
            if line.logprob is not None and (there := told.get(line.trial)) is not None
        ]
        if gaps and max(gaps) > LOG_TOLERANCE:
            raise UsageError(
                f"{self.backend.name} answers otherwise than in {self.folder}: a log-probability differs by "
                f"{max(gaps):.2g} nats; measure again with this model, device and version"
            )


def _grids_of(seam: Seam) -> tuple[WindowGrid, ...]:
    """The grids of a layer, one per KV head; empty where it folds nothing."""
    compressor = getattr(seam.attention, "compressor", None)
    return gate_grids(compressor)


def roll_name(slots: int) -> str:
    """The arm of gates that are rolled by so many slots."""
    return f"roll {slots}"


def _observation(protocol: Protocol, trial: Trial, reply: Reply, arm: str) -> Observation:
    """Scored by the first answer token, whatever the protocol would do with a text."""
    return Protocol.observe(protocol, trial, reply, arm)


def _chosen(run: Run, arm: str | None, folder: Path) -> tuple[str, dict[str, Any]]:
    """The arm to be explained: the named one, or the only one that can be meant."""
    arms = {described["name"]: described for described in run.description["arms"]}
    local = [name for name, one in arms.items() if one["backend"]["backend"] == "transformers"]
    if arm is not None:
        if arm not in arms:
            raise UsageError(f"--arm {arm}: {folder} has no such arm; it has {', '.join(arms)}")
        if arm not in local:
            raise UsageError(
                f"--arm {arm} was answered by {arms[arm]['backend']['backend']}; only models of transformers, that run "
                "on this machine, can be taken apart"
            )
        return arm, arms[arm]
    folded = [name for name in local if _stride(arms[name]["backend"]["grids"])] or local
    if len(folded) != 1:
        raise UsageError(
            f"{folder} has {len(folded)} arms that could be explained"
            + (
                f": {', '.join(folded)}; name one with --arm"
                if folded
                else "; measure a model of transformers"
            )
        )
    return folded[0], arms[folded[0]]


def _stride(grids: Sequence[dict[str, Any]] | None) -> int | None:
    """The modulus that the grids have together; None without a grid that folds anything."""
    together_ = math.lcm(*(int(grid["stride"]) for grid in grids or ()))
    return together_ if together_ > 1 else None


def _checkpoint(backend: dict[str, Any], model: str | None, folder: Path) -> Path:
    """Where the arm's model lies: as given, as the run says, or in the zoo by its name."""
    if model is not None:
        if model in zoo.names():
            return zoo.folder(model)
        if Path(model).is_dir():
            return Path(model)
        raise UsageError(f"--model {model}: neither a folder nor one of the zoo: {', '.join(zoo.names())}")
    told = backend.get("path")
    if told and Path(told).is_dir():
        return Path(told)
    if backend["model"] in zoo.names():
        return zoo.folder(backend["model"])
    raise UsageError(
        f"{folder} was measured with {backend['model']}, which is not at {told or 'a place that run.json tells'}; "
        "say where it is with --model"
    )


def _protocol(described: dict[str, Any], checkpoint: Path) -> Protocol:
    """The run's protocol with its settings; a tokenizer is read from the checkpoint."""
    settings: dict[str, Any] = {}
    for name, value in described["settings"].items():
        if isinstance(value, dict) and set(value) == {"name", "digest"}:
            tokenizer = Tokenizer.load(checkpoint)
            if tokenizer.digest != value["digest"]:
                raise UsageError(
                    f"{checkpoint} has another tokenizer than the run's protocol was measured with"
                )
            settings[name] = tokenizer
        else:
            settings[name] = tuple(value) if isinstance(value, list) else value
    try:
        protocol: Protocol = PROTOCOLS.load(described["name"])(**settings)
    except TypeError as error:
        raise UsageError(f"protocol {described['name']} cannot be made from run.json: {error}") from None
    return protocol


def _tokens_per_second(folder: Path, arm: str) -> float | None:
    """How fast the run was measured."""
    try:
        lines = (folder / "timings.jsonl").read_text(encoding="utf-8").splitlines()
        timings = [timing for line in lines if (timing := json.loads(line))["arm"] == arm]
        seconds = sum(timing["seconds"] for timing in timings)
        return sum(timing["tokens"] for timing in timings) / seconds if seconds > 0 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _slug(arm: str, settings: Settings) -> str:
    """A folder name: the arm, and what is not the default."""
    words = [arm.replace("/", "-")]
    chosen = (settings.mode, "mean"), (settings.branch, "all"), (settings.where, "last")
    words += [word for word, usual in chosen if word != usual]
    return "-".join(words)
