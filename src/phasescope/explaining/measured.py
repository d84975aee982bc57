"""A condition of a run as it was measured: which can be explained, its model, its protocol, and its contexts again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from ..backends.transformers.backend import TransformersBackend
from ..checkpoints.resolve import resolve_measured
from ..errors import UsageError
from ..logs import read_timings
from ..protocols import Batch, Protocol, described_protocol
from ..records import Observation, Trial
from ..runs import ConditionDescription, Run, read_run
from .settings import ExplainSettings

DEFAULT_BLOCKS = 200
REFERENCE_CONTEXTS = 8
"""Contexts of the reference prompts: over them heads' outputs are averaged, and gates are read."""
REFERENCE_PROMPTS = 64
"""The fewest reference prompts, for protocols that ask one question a context."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One condition of a run, with the model that answered it.

    Attributes:
        folder: of the run.
        condition: its name.
        described: what the run says of it.
        observed: its answers.
        seed: of the run.
        backend: the model, loaded again.
        protocol: as the run asked.
    """

    folder: Path
    condition: str
    described: ConditionDescription
    observed: Sequence[Observation]
    seed: int
    backend: TransformersBackend
    protocol: Protocol

    @classmethod
    def load(cls, folder: Path, settings: ExplainSettings) -> Self:
        """Read a run, and load the model of one condition.

        Args:
            folder: of the run.
            settings: which condition, and from where and how its model is loaded.

        Raises:
            UsageError: if there is no such run or condition, or its model is not to be had.
        """
        run = read_run(folder)
        described = _chosen(run, settings.condition, folder)
        name, info = described.name, described.backend
        observed = run.observations[name]
        if not observed:
            raise UsageError(f"condition {name} of {folder} has answered no trial; measure it first")
        path = resolve_measured(info, settings.model).folder
        backend = TransformersBackend.load(
            path,
            name=info.model,
            dtype=info.dtype or "auto",
            device=settings.device,
            trust_remote_code=settings.trust_remote_code,
        )
        if backend.describe()["digest"] != info.digest:
            raise UsageError(
                f"{path} holds other weights than {folder} was measured with; give them with --model"
            )
        return cls(
            folder=folder,
            condition=name,
            described=described,
            observed=observed,
            seed=run.description.seed,
            backend=backend,
            protocol=described_protocol(described.protocol, path),
        )

    @property
    def stride(self) -> int | None:
        """The stride by which the run's results are folded; None without a grid that folds anything."""
        return self.described.stride

    def contexts(self, blocks: int | None) -> list[Batch]:
        """The run's own contexts, from its first on, until there are enough blocks.

        Raises:
            UsageError: if the run has answered fewer whole blocks than are asked for.
        """
        wanted = DEFAULT_BLOCKS if blocks is None else blocks
        asked = {(trial.cluster, trial.trial) for trial in self.observed}
        chosen: list[Batch] = []
        count = 0
        for batch in self._drawn(self.protocol, [self.seed, *self.protocol.name.encode()]):
            if count >= wanted:
                break
            if not all((trial.cluster, trial.digest) in asked for trial in batch):
                continue  # not answered yet, or dropped
            chosen.append(tuple(_first_token(trial) for trial in batch))
            count += len({trial.block for trial in batch})
        if not chosen or (blocks is not None and count < blocks):
            raise UsageError(
                f"--blocks {wanted}: {self.folder} has answered {count} whole blocks of {self.condition}; ask for "
                "at most so many, or measure more contexts"
            )
        return chosen

    def reference(self, seed: int, batch_size: int) -> Iterator[Batch]:
        """Contexts that are not the run's: drawn by the same protocol from another seed.

        Args:
            seed: of these contexts.
            batch_size: prompts in a context, about.
        """
        few = max(REFERENCE_CONTEXTS, -(-REFERENCE_PROMPTS // max(1, batch_size)))
        protocol = self.protocol.with_contexts(few)
        prompts = contexts = 0
        for batch in self._drawn(protocol, [seed, self.seed, *b"reference"]):
            if contexts >= REFERENCE_CONTEXTS and prompts >= REFERENCE_PROMPTS:
                return
            contexts, prompts = contexts + 1, prompts + len(batch)
            yield tuple(_first_token(trial) for trial in batch)

    def _drawn(self, protocol: Protocol, seed: Sequence[int]) -> Iterator[Batch]:
        vocabulary = self.backend.vocabulary() if protocol.synthetic else None
        return islice(protocol.batches(vocabulary, np.random.default_rng(seed)), len(protocol.batch_sizes()))

    def tokens_per_second(self) -> float | None:
        """How fast the run was measured."""
        timings = read_timings(self.folder).get(self.condition, [])
        seconds = sum(timing.seconds for timing in timings)
        return sum(timing.tokens for timing in timings) / seconds if seconds > 0 else None


def _chosen(run: Run, condition: str | None, folder: Path) -> ConditionDescription:
    """The condition to be explained: the named one, or the only one that can be meant."""
    conditions = {described.name: described for described in run.description.conditions}
    local = [one for one in conditions.values() if one.backend.backend == "transformers"]
    if condition is not None:
        if condition not in conditions:
            raise UsageError(
                f"--condition {condition}: {folder} has no such condition; it has {', '.join(conditions)}"
            )
        if conditions[condition] not in local:
            raise UsageError(
                f"--condition {condition} was answered by {conditions[condition].backend.backend}; only models of "
                "transformers, that run on this machine, can be taken apart"
            )
        return conditions[condition]
    candidates = [one for one in local if one.stride] or local
    if len(candidates) != 1:
        names = ", ".join(one.name for one in candidates)
        raise UsageError(
            f"{folder} has {len(candidates)} conditions that could be explained"
            + (f": {names}; name one with --condition" if candidates else "; measure a model of transformers")
        )
    return candidates[0]


def _first_token(trial: Trial) -> Trial:
    """The trial with the first token of its answer as the whole of it."""
    return trial if len(trial.answer_ids) == 1 else replace(trial, answer_ids=trial.answer_ids[:1])
