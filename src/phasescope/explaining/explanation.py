"""From a run to its explanation: heads taken away, gates read, rules applied, everything logged and resumable.

settings.json       what is explained, as resolved: written first, and compared on resume
observations.jsonl  the same trials under every condition (untouched, without each unit, with rolled gates)
explain.json        what follows from it; the same settings give the same bytes
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from ..errors import BrokenRecordError, UsageError
from ..files import dump_json, read_json, write_atomic
from ..grid import WindowGrid
from ..logs import ObservationLog
from ..protocols import Batch, Protocol
from ..records import SCHEMA, Observation
from ..running.runner import Report, check_kept
from .ablation import Ablation
from .boundary import rolls_of
from .findings import Evidence, explained
from .gates import GateTally
from .hooks import AttentionHook, find_attention_hooks
from .measured import REFERENCE_CONTEXTS, Measured
from .probe import gate_grids, has_bias, priors, reads_closing, rolled, uncompressed
from .result import Cost, ExplanationResult, Method, read_explanation
from .settings import ExplainSettings
from .specialisation import PhaseAxis
from .units import BASE, Unit, every_head, latent_heads, together

NAMES_OF_0_1 = {"arm": "condition", "arms": "conditions"}
"""What version 0.1 called keys of settings.json."""
UNFOLDED = 8
"""Modulus of the phases for a model without a grid, unless another is given."""
LOG_TOLERANCE = 1e-2
"""Nats by which a log-probability may differ from the run's own; more is another model, or another precision."""


class Explanation:
    """One condition of a run, ready to be explained.

    Args:
        folder: of the run.
        settings: what and how.
        out: where to write; by default `explain/CONDITION` in the run.

    Raises:
        UsageError: if the run, the condition, the model or the settings cannot be explained, in one line.
    """

    def __init__(self, folder: Path, settings: ExplainSettings, out: Path | None = None) -> None:
        self.settings = settings
        self.measured = Measured.load(folder, settings)
        self.condition, self.backend = self.measured.condition, self.measured.backend
        own = self.measured.stride
        stride = settings.fold or own or UNFOLDED
        if own is not None and stride % own:
            raise UsageError(
                f"fold {stride}: the model's grids repeat every {own} tokens; leave --fold out, or give a multiple"
            )
        self.axis = PhaseAxis(stride, self.measured.protocol.moves)
        self.hooks = find_attention_hooks(self.backend.model)
        self.units = self._units()
        self.rolls = self._rolls() if settings.rolls else []
        self.engine = self._engine(self.units)
        self.batches = self.measured.contexts(settings.blocks)
        self.out = out or folder / "explain" / _slug(self.condition, settings)

    @property
    def conditions(self) -> list[str]:
        """Everything that each trial is answered as."""
        return [BASE, *(unit.name for unit in self.units), *(roll_name(slots) for slots in self.rolls)]

    @property
    def path(self) -> Path:
        """Of explain.json."""
        return self.out / "explain.json"

    def cost(self) -> Cost:
        """What it will take: contexts are read once for all units, and once for each roll."""
        trials = [trial for batch in self.batches for trial in batch]
        layouts = {(t.cluster, t.layout): len(t.prompt_ids) for t in trials}
        tokens = sum(layouts.values())
        reference = tokens * REFERENCE_CONTEXTS // max(1, len(self.batches))
        anew = len(self.units) if self.settings.where == "everywhere" else 0
        read = tokens * (1 + len(self.rolls) + anew) + reference
        seconds = None
        if (speed := self.measured.tokens_per_second()) is not None:
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

    def run(self, report: Report = lambda done, total: None) -> ExplanationResult:
        """Explain, or go on where an interrupted explanation stopped.

        Args:
            report: called with the number of answered trials, and of all.

        Returns:
            what explain.json holds now.

        Raises:
            UsageError: if the folder holds another explanation, or the model does not answer as in the run.
        """
        self._settle()
        log = ObservationLog(self.out / "observations.jsonl")
        sizes = [len(batch) * len(self.conditions) for batch in self.batches]
        kept = log.resume(sizes)
        done, total = 0, sum(sizes)
        report(0, total)
        tally, engine = GateTally(self.axis.stride), self.engine
        for batch in self.measured.reference(self.settings.seed, len(self.batches[0])):
            engine.learn(batch, tally.add)
        for batch, size in zip(self.batches, sizes, strict=True):
            known = kept[done : done + size]
            if known:
                for number, condition in enumerate(self.conditions):
                    lines = known[number * len(batch) : (number + 1) * len(batch)]
                    check_kept(lines, condition, batch, log.path)
            else:
                answered = list(self._lines(batch, engine))
                self._compare(answered[: len(batch)])
                log.append(answered)
            done += size
            report(done, total)
        self._result(log.path, tally).write(self.path)
        return read_explanation(self.path)

    def _result(self, log: Path, tally: GateTally) -> ExplanationResult:
        """What follows from all answers, and from the gates over the reference prompts."""
        evidence = Evidence(
            measured=self.measured,
            axis=self.axis,
            log=log,
            units=[unit.name for unit in self.units],
            rolls=[(slots, roll_name(slots)) for slots in self.rolls],
            gates=tally.profiles(priors(self.hooks)),
            coverage=tally.coverage_score(),
            grids={hook.layer: grids for hook in self.hooks if (grids := _grids_of(hook))},
            closing=all(reads_closing(hook.attention) for hook in self.hooks),
            raw=max((uncompressed(hook.attention) for hook in self.hooks if _grids_of(hook)), default=0),
        )
        method = Method(
            mode=self.settings.mode,
            branch=self.settings.branch,
            where=self.settings.where,
            seed=self.settings.seed,
            draws=self.settings.draws,
            reference_prompts=self.engine.activations.outputs,
            verified={name: float(f"{value:.3g}") for name, value in self.engine.verified.items()},
            kind=self.measured.described.backend.kind or "unknown",
        )
        rng = np.random.default_rng([self.settings.seed, *self.condition.encode()])
        # A result holds no times, so that the same settings give the same bytes.
        return explained(evidence, method, self.cost().model_copy(update={"seconds": None}), rng=rng)

    def _units(self) -> list[Unit]:
        shapes = [hook.shape for hook in self.hooks]
        latent = self.settings.branch == "all" and all(hook.latent for hook in self.hooks)
        units = latent_heads(shapes) if latent else every_head(shapes, self.settings.branch)
        return units + [together(names, units) for names in self.settings.together]

    def _rolls(self) -> list[int]:
        if not has_bias(self.hooks):
            return []
        widths = {grid.width for hook in self.hooks for grid in _grids_of(hook)}
        return rolls_of(min(widths)) if widths else []

    def _engine(self, units: Sequence[Unit]) -> Ablation:
        return Ablation(
            self.backend.model,
            self.hooks,
            units,
            mode=self.settings.mode,
            where=self.settings.where,
            max_tokens=self.backend.max_tokens,
            name=self.backend.name,
        )

    def _lines(self, batch: Batch, engine: Ablation) -> Iterator[Observation]:
        """Every condition's answers to one context, conditions outermost."""
        answered = engine.ask(batch)
        plain = self._engine([])
        for slots in self.rolls:
            with rolled(self.hooks, slots):
                answered[roll_name(slots)] = plain.ask(batch)[BASE]
        for condition in self.conditions:
            for trial, reply in zip(batch, answered[condition], strict=True):
                # Scored by the first answer token, whatever the protocol would do with a text.
                yield Protocol.observe(self.measured.protocol, trial, reply, condition)

    def _settle(self) -> None:
        """Write settings.json, or compare with the one that is there."""
        given = {
            **self.settings.model_dump(exclude={"model", "draws", "device", "trust_remote_code"}),
            "schema": SCHEMA,
            "condition": self.condition,
            "blocks": len({trial.block for batch in self.batches for trial in batch}),
            "digest": self.measured.described.backend.digest,
            "protocol": {k: v for k, v in self.measured.described.protocol.facts().items() if k != "plan"},
            "run_seed": self.measured.seed,
            "conditions": self.conditions,
            "threads": torch.get_num_threads(),
        }
        given = json.loads(dump_json(given))
        path = self.out / "settings.json"
        if not path.exists():
            write_atomic(path, dump_json(given))
            return
        there = read_json(path)
        if not isinstance(there, dict):
            raise BrokenRecordError(f"{path} does not hold the settings of an explanation; use another --out")
        there = {NAMES_OF_0_1.get(key, key): value for key, value in there.items()}
        for key in sorted({*there, *given}):
            if there.get(key) != given.get(key):
                raise UsageError(
                    f"{path} has {key} = {there.get(key)!r}, this explanation {given.get(key)!r}; resume with "
                    "the same, or use another --out"
                )

    def _compare(self, lines: Sequence[Observation]) -> None:
        """The untouched model must answer as it did in the run."""
        measured = {o.trial: o.logprob for o in self.measured.observed}
        gaps = [
            abs(line.logprob - there)
            for line in lines
            if line.logprob is not None and (there := measured.get(line.trial)) is not None
        ]
        if gaps and max(gaps) > LOG_TOLERANCE:
            raise UsageError(
                f"{self.backend.name} does not answer as in {self.measured.folder}: a log-probability differs by "
                f"{max(gaps):.2g} nats; measure again with this model, device and version"
            )


def _grids_of(hook: AttentionHook) -> tuple[WindowGrid, ...]:
    """The grids of a layer, one per KV head; empty where it compresses nothing."""
    return gate_grids(getattr(hook.attention, "compressor", None))


def roll_name(slots: int) -> str:
    """The condition of gates that are rolled by so many slots."""
    return f"roll {slots}"


def _slug(condition: str, settings: ExplainSettings) -> str:
    """A folder name: the condition, and what is not the default."""
    words = [condition.replace("/", "-")]
    chosen = (settings.mode, "mean"), (settings.branch, "all"), (settings.where, "last")
    words += [word for word, usual in chosen if word != usual]
    return "-".join(words)
