"""Reading a source to the end: positions and scores as arrays, and what had to be left out."""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ..errors import UsageError
from ..text.locate import LEFT_OUT, Locator
from .coverage import Floats, Ints
from .readers import AbstractReader
from .samples import Columns, Sample

Report = Callable[[int, int], None]
"""Called with the samples that are done and how many there are thought to be."""

TEXT = 2_000_000
"""Characters of prompts that are encoded together."""
MANY = 50_000
"""Samples that are held together where there is no text."""


@dataclass(frozen=True)
class Placed:
    """The samples of a source that have a token position.

    Attributes:
        index_N: number of each in its source, from 0.
        position_N: token index of its needle.
        score_N: its score, NaN where there is none.
        total: samples in all, those without a position included.
        left_out: how many have none, by reason.
        examples: where the first few of each reason stand.
        columns: the columns that were read.
        located: how many were looked up in their text; the others have the position of the file.
        prints: a checksum of every sample's prompt, by which a second reading is known to be the same.
    """

    index_N: Ints
    position_N: Ints
    score_N: Floats
    total: int
    left_out: dict[str, int]
    examples: dict[str, tuple[str, ...]]
    columns: Columns
    located: int
    prints: array[int] = field(repr=False)


def read(
    source: str,
    reader: AbstractReader,
    columns: Columns,
    locator: Locator,
    report: Report = lambda d, t: None,
) -> Placed:
    """Read every sample and give it its place.

    Raises:
        UsageError: if there are no samples, none can be placed, or a column is missing or holds what it may not.
        BrokenRecordError: for a record that cannot be read.
    """
    index, position, score, prints = array("q"), array("q"), array("d"), array("I")
    left_out: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    total = located = 0
    found = columns
    for batch, resolved, done in batches(source, reader, columns, locator):
        found = resolved
        for sample, place in zip(batch, locator.place(batch), strict=True):
            prints.append(checksum(sample))
            if isinstance(place, str):
                left_out[place] += 1
                examples.setdefault(place, [])
                if len(examples[place]) < 3:
                    examples[place].append(sample.where)
            else:
                index.append(total)
                position.append(place)
                score.append(np.nan if sample.score is None else sample.score)
                located += int(_in_text(sample, locator))
            total += 1
        report(total, round(total / done) if done else total)
    if not total:
        raise UsageError(f"{source} has no samples; give a file with some")
    if not index:
        raise UsageError(
            f"{source}: no sample has a token position ({_reasons(left_out)}); {_advice(left_out)}"
        )
    return Placed(
        index_N=np.frombuffer(index, dtype=np.int64),
        position_N=np.frombuffer(position, dtype=np.int64),
        score_N=np.frombuffer(score, dtype=np.float64),
        total=total,
        left_out={reason: left_out[reason] for reason in LEFT_OUT if left_out[reason]},
        examples={reason: tuple(places) for reason, places in examples.items()},
        columns=found,
        located=located,
        prints=prints,
    )


def batches(
    source: str, reader: AbstractReader, columns: Columns, locator: Locator
) -> Iterator[tuple[list[Sample], Columns, float]]:
    """Samples in handfuls that fit in memory, the columns that the first record has, and the share read."""
    held: list[Sample] = []
    characters, found, done = 0, None, 0.0
    for row in reader.rows(source, columns):
        if found is None:
            found = columns.resolved(row.record, row.where)
            _check(source, reader, columns, found, locator, row.record.keys())
        done = row.done
        for sample in reader.samples(row, found):
            held.append(sample)
            characters += len(sample.prompt) if isinstance(sample.prompt, str) else 1000 * bool(sample.prompt)
        if characters > TEXT or len(held) >= MANY:
            yield held, found, done
            held, characters = [], 0
    if held:
        yield held, found or columns, 1.0


def checksum(sample: Sample) -> int:
    """A checksum of what a pad depends on."""
    return zlib.crc32(str(sample.prompt).encode("utf-8", "surrogatepass")) if sample.prompt else 0


def _in_text(sample: Sample, locator: Locator) -> bool:
    return locator.tokenizer is not None and sample.prompt is not None and sample.needle is not None


def _check(
    source: str, reader: AbstractReader, asked: Columns, found: Columns, locator: Locator, names: object
) -> None:
    """Refuse a file whose first record shows that no sample can be placed as the user asks."""
    if not (asked.position or asked.prompt or asked.needle):
        return  # the format knows its places by itself
    text = bool(found.prompt and found.needle)
    if not found.position and not text:
        listed = ", ".join(map(str, list(names)[:12]))  # type: ignore[call-overload]  # keys of a record
        missing = "needle" if found.prompt else "prompt" if found.needle else "position"
        raise UsageError(
            f"{source}: no column for the {missing}; there are {listed}; name it with --{missing} (or a column of "
            "token positions with --position)"
        )
    if not found.position and locator.tokenizer is None:
        raise UsageError(
            f"{source} gives text and no token positions; give the model's tokenizer with --tokenizer"
        )
    for option, wanted in (("--chat", locator.chat), ("--find", locator.find is not None)):
        if wanted and not text:
            raise UsageError(
                f"{source}: {option} needs a prompt and a needle, and the file gives positions only; move them with "
                "--offset"
            )


def _reasons(left_out: Counter[str]) -> str:
    return ", ".join(f"{reason}: {count}" for reason, count in left_out.items())


def _advice(left_out: Counter[str]) -> str:
    (most, _), *_ = left_out.most_common(1)
    return {
        "needle found more than once": "say which one counts with --occurrence first or last, or give more of "
        "its surroundings with --find",
        "needle not found in the prompt": "check the columns that --prompt and --needle name",
    }.get(most, "check the columns that --needle and --position name")
