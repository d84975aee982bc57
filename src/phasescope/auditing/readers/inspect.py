"""Logs of inspect: `.json`, and `.eval`, which is a zip of JSON files."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import BrokenRecordError
from ...files import read_json
from ..samples import ABSENT, Columns, Sample, at_path, score_of
from .base import AbstractReader, Record, Row, file_of

KEPT = ("input", "target", "metadata")


class Inspect(AbstractReader):
    """One answered sample per record: `input`, `target`, `metadata`, `scores`.

    The prompt is `input`, a text or a conversation; the needle is `metadata.needle`, or else the target.
    Scores are the first scorer's, or the one named with --score; the letters C, P, I and N are 1, ½, 0 and
    0. The epochs of one sample share its prompt and so its phase: they are one sample with their mean score.
    A `.eval` file is read sample by sample, a `.json` log as a whole.
    """

    columns = Columns(
        prompt=("input",),
        needle=("metadata.needle", "target"),
        position=("metadata.token_position", "metadata.position", "metadata.needle_position"),
    )
    fixable = False
    note = (
        "inspect logs hold what was asked; tools, solvers and system messages may have added tokens in front."
    )

    def fits(self, source: str, first: Record | None) -> bool:
        """By its ending; a `.json` file has a log's two parts."""
        if source.lower().endswith(".eval"):
            return True
        return source.lower().endswith(".json") and first is not None and {"eval", "samples"} <= first.keys()

    def rows(self, source: str, columns: Columns) -> Iterator[Row]:
        """One record per sample: what was asked, and each scorer's mean over its epochs under its name."""
        path = file_of(source)
        together: dict[str, Record] = {}
        places: dict[str, tuple[str, float]] = {}
        for where, done, record in _zipped(path) if zipfile.is_zipfile(path) else _listed(path):
            name = str(record.get("id", where))
            if name in together:
                together[name]["epochs"].append(record.get("scores"))
            else:
                kept = {key: record.get(key) for key in KEPT}
                together[name] = {**kept, "epochs": [record.get("scores")]}
                places[name] = where, done
        for name, record in together.items():
            where, done = places[name]
            epochs = [scores for scores in record.pop("epochs") if isinstance(scores, dict)]
            scorers = dict.fromkeys(scorer for scores in epochs for scorer in scores)
            means = {
                scorer: _mean([at_path(scores, f"{scorer}.value") for scores in epochs], scorer, where)
                for scorer in scorers
            }
            yield Row(where, means | record, done)

    def samples(self, row: Row, columns: Columns) -> list[Sample]:
        """One sample; its score is the first scorer's unless one is named."""
        if not columns.score:
            first = next((scorer for scorer in row.record if scorer not in KEPT), None)
            value = row.record.get(first) if first else None
            inside = next(iter(value), None) if isinstance(value, dict) else None
            path = () if first is None else (f"{first}.{inside}" if inside else first,)
            columns = replace(columns, score=path)
        return super().samples(row, columns)


def _mean(values: list[Any], scorer: str, where: str) -> Any:
    """The mean score over epochs; of a score with several parts, by part."""
    parts = [value for value in values if isinstance(value, dict)]
    if parts:
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: _mean([part.get(name) for part in parts], f"{scorer}.{name}", where) for name in names}
    known = [
        score
        for value in values
        if value is not ABSENT
        and value != "NaN"
        and (score := score_of(value, where, f"score {scorer}")) is not None
    ]
    return sum(known) / len(known) if known else None


def _listed(path: Path) -> Iterator[tuple[str, float, Record]]:
    log = read_json(path)
    samples = log.get("samples") if isinstance(log, dict) else None
    if not isinstance(samples, list):
        raise BrokenRecordError(f"{path} has no list of samples; write the log with its samples")
    for number, sample in enumerate(samples, start=1):
        yield f"{path}, sample {number}", number / len(samples), _checked(sample, f"{path}, sample {number}")


def _zipped(path: Path) -> Iterator[tuple[str, float, Record]]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.startswith("samples/") and n.endswith(".json")]
            for number, name in enumerate(sorted(names, key=_natural), start=1):
                where = f"{path}, {name}"
                try:
                    sample = json.loads(archive.read(name))
                except (ValueError, RecursionError) as error:
                    raise BrokenRecordError(f"{where}: not JSON ({error}); copy the log anew") from None
                yield where, number / len(names), _checked(sample, where)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise BrokenRecordError(f"{path} is a damaged .eval log: {error}; copy it anew") from None


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts sample 10 behind sample 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _checked(sample: Any, where: str) -> Record:
    if not isinstance(sample, dict):
        raise BrokenRecordError(f"{where}: {type(sample).__name__} instead of a sample; copy the log anew")
    return sample
