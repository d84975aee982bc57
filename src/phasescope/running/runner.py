"""Where protocol meets backend: a run folder that can be interrupted at any moment and resumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..backends import Backend, BackendSpec
from ..errors import UsageError
from ..files import alone, dump_json, write_atomic
from ..logs import ObservationLog, Timing, append_timing, compress, find_log
from ..protocols import Batch, Protocol
from ..records import Dropped, NoReply, Observation, Reply, Trial, count_reasons
from ..runs import ConditionDescription, RunDescription, read_description
from ..text.synthetic import RetrievalVocabulary
from . import Engine, Introduction, Job, Local

LOST = 64
"""Trials of a condition after which, if none could be observed, nothing more is asked."""

Report = Callable[[int, int], None]
"""Called with the trials that are done and the trials in all, after every batch."""


@dataclass(frozen=True)
class Condition:
    """One backend, or how to make it, under one protocol, by a name that is unique in its run."""

    name: str
    backend: Backend | BackendSpec
    protocol: Protocol


def run(
    conditions: Sequence[Condition],
    out: Path,
    seed: int,
    report: Report = lambda done, total: None,
    engine: Engine | None = None,
    command: str | None = None,
    compressed: bool = False,
) -> None:
    """Ask every condition its trials and log the observations; an interrupted run goes on where it stopped.

    The folder holds run.json (what is run: written first, and compared on resume), observations.jsonl
    (batch by batch, conditions outermost) and timings.jsonl (what a batch cost; the only file that differs
    between two runs of the same thing). Conditions with equal protocols see the same trials. Whichever engine
    answers, the files are the same, so that another may finish what one began.

    Args:
        conditions: at least one, with different names.
        out: the run folder; created if missing.
        seed: of every draw of the protocols.
        report: called with the trials that are done, and all.
        engine: who answers; by default this process, one batch after the other.
        command: the user's command line or call, for the report; passwords in addresses are left out.
        compressed: pack the observations with zstd once all are there.

    Raises:
        UsageError: if the conditions are not usable together, the folder holds another run or is being written by
            another process, or nothing of a condition can be observed. In the last case a batch that shows it early is
            not kept, so that the same command can ask it again.
    """
    names = [condition.name for condition in conditions]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"conditions are named {names}; give at least one, and each a name of its own")
    with closing(engine or Local()) as answering:
        introductions = answering.open(
            [condition.backend for condition in conditions],
            [condition.protocol.synthetic for condition in conditions],
        )
        with alone(out):
            described = [describe(one, found) for one, found in zip(conditions, introductions, strict=True)]
            _settle(out, RunDescription.now(described, seed, command))
            plan = planned(conditions, seed, [found.vocabulary for found in introductions])
            _answer(conditions, out, plan, report, answering)
            if compressed:
                compress(find_log(out))


def observed(
    name: str, backend: Backend, protocol: Protocol, rng: np.random.Generator
) -> Iterator[Observation]:
    """What a backend that is at hand recalls, without a folder; trials without a reply are left out."""
    vocabulary = backend.vocabulary() if protocol.synthetic else None
    for batch in protocol.batches(vocabulary, rng):
        for trial, reply in zip(batch, backend.answer(batch), strict=True):
            if isinstance(reply, Reply):
                yield protocol.observe(trial, reply, name)


def planned(
    conditions: Sequence[Condition], seed: int, vocabularies: Sequence[RetrievalVocabulary | None]
) -> Iterator[tuple[int, Batch]]:
    """Every batch of every condition, with its number; draws depend on the seed and the protocol's name alone."""
    for number, (condition, vocabulary) in enumerate(zip(conditions, vocabularies, strict=True)):
        rng = np.random.default_rng([seed, *condition.protocol.name.encode()])
        for batch in condition.protocol.batches(vocabulary, rng):
            yield number, batch


def _answer(
    conditions: Sequence[Condition],
    out: Path,
    plan: Iterator[tuple[int, Batch]],
    report: Report,
    engine: Engine,
) -> None:
    """Check the batches that are there, have the others answered, and log them in plan order."""
    log = ObservationLog(find_log(out))
    sizes = [size for condition in conditions for size in condition.protocol.batch_sizes()]
    kept = log.resume(sizes)
    done, total = 0, sum(sizes)
    lost: dict[str, list[str] | None] = {condition.name: [] for condition in conditions}
    report(0, total)
    while done < len(kept):
        number, batch = next(plan)
        lines = kept[done : done + len(batch)]
        check_kept(lines, conditions[number].name, batch, log.path)
        _count_lost(lost, conditions[number].name, lines)
        done += len(batch)
        report(done, total)
    sent: deque[Job] = deque()
    for answer in engine.answer(_noted(plan, sent)):
        number, trials = sent.popleft()
        condition = conditions[number]
        lines = [_line(condition, trial, reply) for trial, reply in zip(trials, answer.replies, strict=True)]
        _count_lost(lost, condition.name, lines)
        if len(reasons := lost[condition.name] or []) >= LOST:
            raise UsageError(
                f"{_all_lost(condition.name, reasons)}; this batch is not kept, give the command again"
            )
        log.append(lines)
        cost = {"trials": len(trials), "seconds": answer.seconds, "tokens": answer.tokens}
        append_timing(out, Timing(condition=condition.name, cluster=trials[0].cluster, **cost))
        done += len(trials)
        report(done, total)
    for name, every in lost.items():
        if every:
            raise UsageError(f"{_all_lost(name, every)}; measure into another folder")


def _count_lost(
    lost: dict[str, list[str] | None], condition: str, batch: Sequence[Observation | Dropped]
) -> None:
    """Collect the reasons of a condition of which nothing was observed yet; None once something was."""
    reasons = lost[condition]
    if reasons is None or any(isinstance(line, Observation) for line in batch):
        lost[condition] = None
    else:
        reasons += [line.dropped for line in batch if isinstance(line, Dropped)]


def _all_lost(condition: str, reasons: Sequence[str]) -> str:
    return f"none of the {len(reasons):,} trials of {condition} could be observed: {count_reasons(reasons)}; fix that"


def _noted(plan: Iterator[tuple[int, Batch]], sent: deque[Job]) -> Iterator[Job]:
    """The jobs, each noted as it is taken, so that its answer finds its trials."""
    for job in plan:
        sent.append(job)
        yield job


def _line(condition: Condition, trial: Trial, reply: Reply | NoReply) -> Observation | Dropped:
    """What the log holds of a trial."""
    if isinstance(reply, Reply):
        return condition.protocol.observe(trial, reply, condition.name)
    return Dropped(**trial.facts(condition.name), dropped=reply.reason)


def describe(condition: Condition, introduction: Introduction) -> ConditionDescription:
    """What run.json says of a condition.

    Raises:
        UsageError: if its protocol or its backend describes itself by something else than JSON values.
    """
    facts = {
        "name": condition.name,
        "protocol": condition.protocol.describe(),
        "backend": introduction.description,
    }
    return ConditionDescription.checked_json(dump_json(facts))


def _settle(out: Path, given: RunDescription) -> None:
    """Write run.json, or compare with the one that is there; one without observations is nobody's run yet."""
    path = out / "run.json"
    log = find_log(out).exists()
    if not path.exists() and log:
        raise UsageError(f"{out} has observations without a run.json; use another run folder")
    if not log:
        write_atomic(path, dump_json(given.facts()))
    elif (difference := read_description(out).difference(given)) is not None:
        raise UsageError(f"{path} has {difference}; resume with the same, or use another folder")


def check_kept(lines: Sequence[Observation | Dropped], condition: str, batch: Batch, path: Path) -> None:
    """Refuse to go on from observations of other trials."""
    for observation, trial in zip(lines, batch, strict=True):
        there, here = (observation.condition, observation.trial), (condition, trial.digest)
        if there != here:
            raise UsageError(f"{path} holds trial {there}, the plan has {here}; use another run folder")
