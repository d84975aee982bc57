"""An audit from source to numbers: what is read, counted, tested and, if asked, fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..columns import Tabular
from ..errors import UsageError
from ..files import dump_json, write_atomic
from ..text.locate import Locator
from .coverage import STRIDES, Coverage, Floats, cover
from .fix import Fix, fix, write_pads
from .hidden import blind_phases, detectable_loss, hidden_loss
from .readers import reader_for
from .reading import Placed, Report, read
from .results import PhaseRates, Results, analyse_scores
from .sentence import verdict

SCHEMA = 1
FEWEST = 20
"""Scores from which they are analysed."""


@dataclass(frozen=True)
class StrideAudit:
    """What is known of one stride.

    Attributes:
        coverage: the phases that are visited.
        hidden_S: the largest loss at each phase alone that passes the bar.
        blind: phases at which a model may be blind and pass.
        detectable_S: the smallest loss at each phase alone that would be found; None where none would.
    """

    coverage: Coverage
    hidden_S: Floats
    blind: int
    detectable_S: tuple[float | None, ...]

    @property
    def stride(self) -> int:
        """The modulus."""
        return self.coverage.stride


@dataclass(frozen=True)
class Settings:
    """How a benchmark is audited, with what `AuditSettings` name read: tokenizer and model.

    Attributes:
        source: its file, or `file.py:function`.
        format: its format; None to recognise it.
        columns: names of columns by `prompt`, `needle`, `position`, `score`; None for the format's own.
        locator: how samples are given their positions.
        strides: at which it is looked at; None for the usual ones.
        model_strides: further ones, of a model.
        bar: mean accuracy from which the benchmark counts as passed.
        accuracy: at healthy phases, for the smallest effect that would be found; None for the scores' mean,
            or the bar without scores.
        seed, draws: of the tests.
        fix: the balanced benchmark's file; None for none.
    """

    source: str
    format: str | None
    columns: dict[str, str | None]
    locator: Locator
    strides: tuple[int, ...] | None = None
    model_strides: tuple[int, ...] = ()
    bar: float = 0.9
    accuracy: float | None = None
    seed: int = 0
    draws: int = 2000
    fix: Path | None = None

    def __post_init__(self) -> None:
        if self.fix is not None and not self.chosen:
            raise UsageError(
                "--fix needs to know what to balance; give --stride (it may be repeated) or --model"
            )

    @property
    def chosen(self) -> tuple[int, ...]:
        """The strides that the user cares for by name; empty where the usual ones are looked at."""
        return tuple(sorted({*(self.strides or ()), *self.model_strides}))

    @property
    def all_strides(self) -> tuple[int, ...]:
        """Every stride that is looked at."""
        return tuple(sorted({*(STRIDES if self.strides is None else self.strides), *self.model_strides}))


@dataclass(frozen=True, repr=False)
class Audit(Tabular):
    """What an audit found.

    Attributes:
        settings: how it was made; `format` is resolved.
        note: what has to be said of the format.
        placed: the samples.
        accuracy: at healthy phases, as it was assumed.
        strides: one entry per stride.
        results: of the scores; None where there are too few.
        fixed: of the fix; None where none was asked for.
    """

    settings: Settings
    format: str
    note: str
    placed: Placed
    accuracy: float
    strides: tuple[StrideAudit, ...]
    results: Results | None
    fixed: Fix | None

    def __repr__(self) -> str:
        """Short, as a notebook shows it."""
        return f"Audit({self.settings.source[:80]!r}: {self.verdict[:200]})"

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`, one row per stride and phase: stride, phase, samples, hidden_loss."""
        import pyarrow as pa  # takes a while to import

        rows = [
            {"stride": one.stride, "phase": phase, "samples": samples, "hidden_loss": hidden}
            for one in self.strides
            for phase, (samples, hidden) in enumerate(
                zip(one.coverage.count_S.tolist(), one.hidden_S.tolist(), strict=True)
            )
        ]
        return pa.Table.from_pylist(rows)

    @property
    def verdict(self) -> str:
        """The audit in one sentence."""
        chosen = self.settings.chosen or None
        rows = [
            (s.stride, s.coverage.visited, s.blind, float(s.hidden_S.max()), s.coverage.total)
            for s in self.strides
        ]
        return verdict(rows, chosen, self.settings.bar, self.results.words if self.results else "")


def audit(settings: Settings, report: Report = lambda done, total: None) -> Audit:
    """Read a benchmark, count the phases it visits, and say what it could hide and see.

    Raises:
        UsageError, BrokenRecordError: in one line, for anything that the user gave and that cannot be read.
    """
    name, reader = reader_for(
        settings.source, settings.format, tokenizer=settings.locator.tokenizer, seed=settings.seed
    )
    columns = reader.columns.naming(**settings.columns)
    placed = read(settings.source, reader, columns, settings.locator, report)
    scored_N = ~np.isnan(placed.score_N)
    accuracy = settings.accuracy
    if accuracy is None:
        measured = float(placed.score_N[scored_N].mean()) if scored_N.any() else 0.0
        accuracy = measured or settings.bar
    results = None
    if int(scored_N.sum()) >= FEWEST:
        results = analyse_scores(
            placed.position_N[scored_N],
            placed.score_N[scored_N],
            settings.all_strides,
            np.random.default_rng([settings.seed, 1]),
            settings.draws,
        )
    fixed = None
    if settings.fix is not None:
        fixed = fix(
            settings.source, reader, columns, settings.locator, placed, settings.chosen, settings.fix, report
        )
    return Audit(
        settings=settings,
        format=name,
        note=reader.note,
        placed=placed,
        accuracy=accuracy,
        strides=tuple(_stride(placed, stride, settings, accuracy) for stride in settings.all_strides),
        results=results,
        fixed=fixed,
    )


def _stride(placed: Placed, stride: int, settings: Settings, accuracy: float) -> StrideAudit:
    found = cover(placed.position_N, stride, np.random.default_rng([settings.seed, 0, stride]))
    return StrideAudit(
        coverage=found,
        hidden_S=hidden_loss(found.share_S, settings.bar),
        blind=blind_phases(found.share_S, settings.bar),
        detectable_S=tuple(detectable_loss(found.count_S, accuracy)),
    )


def write(found: Audit, folder: Path) -> None:
    """Write audit.json, and pads.csv where there is a fix. The same audit gives the same bytes."""
    write_atomic(folder / "audit.json", dump_json(as_json(found)))
    if found.fixed is not None:
        write_pads(folder / "pads.csv", found.placed, found.fixed)


def as_json(found: Audit) -> dict[str, Any]:
    """An audit as audit.json holds it: accuracies and losses are fractions."""
    settings, placed = found.settings, found.placed
    return {
        "schema": SCHEMA,
        "verdict": found.verdict,
        "source": settings.source,
        "format": found.format,
        "note": found.note,
        "columns": {
            part: list(getattr(placed.columns, part)) for part in ("prompt", "needle", "position", "score")
        },
        "tokenizer": _tokenizer(settings.locator),
        "samples": placed.total,
        "placed": len(placed.position_N),
        "located_in_text": placed.located,
        "left_out": placed.left_out,
        "left_out_examples": {reason: list(where) for reason, where in placed.examples.items()},
        "bar": settings.bar,
        "accuracy_assumed": found.accuracy,
        "seed": settings.seed,
        "draws": settings.draws,
        "strides": [_stride_json(stride) for stride in found.strides],
        "results": None if found.results is None else _results_json(found.results),
        "fix": None if found.fixed is None else _fix_json(found.fixed),
    }


def _tokenizer(locator: Locator) -> dict[str, Any] | None:
    if locator.tokenizer is None:
        return None
    return {
        "name": locator.tokenizer.name,
        "digest": locator.tokenizer.digest,
        "chat": locator.chat,
        "bos_tokens": locator.start,
        "find": locator.find,
        "occurrence": locator.occurrence,
        "offset": locator.offset,
    }


def _stride_json(found: StrideAudit) -> dict[str, Any]:
    coverage = found.coverage
    return {
        "stride": found.stride,
        "visited": coverage.visited,
        "counts": coverage.count_S.tolist(),
        "min": int(coverage.count_S.min()),
        "max": int(coverage.count_S.max()),
        "p_value": coverage.p_value,
        "p_method": coverage.p_method,
        "effective_phases": coverage.effective,
        "largest_hidden_loss": float(found.hidden_S.max()),
        "hidden_at": int(found.hidden_S.argmax()),
        "blind_phases": found.blind,
        "detectable_loss": list(found.detectable_S),
    }


def _results_json(found: Results) -> dict[str, Any]:
    return {
        "accuracy": found.accuracy,
        "samples": found.total,
        "p_value": found.p_value,
        "period": found.period,
        "tested": list(found.tested),
        "not_testable": list(found.not_testable),
        "method": found.method,
        "strides": [_rates_json(rates) for rates in found.by_stride],
    }


def _rates_json(rates: PhaseRates) -> dict[str, Any]:
    columns: Sequence[tuple[str, Floats]] = (
        ("rate", rates.rate_S),
        ("low", rates.low_S),
        ("high", rates.high_S),
    )
    spread = rates.spread
    return {
        "stride": rates.stride,
        "counts": rates.count_S.tolist(),
        **{name: [None if np.isnan(x) else float(x) for x in values] for name, values in columns},
        "phase_sd": None if spread is None else {"value": spread[0], "low": spread[1], "high": spread[2]},
        "p_value": rates.p_value,
    }


def _fix_json(found: Fix) -> dict[str, Any]:
    return {
        "file": str(found.out),
        "strides": list(found.strides),
        "padded_samples": found.padded,
        "pad_tokens": found.tokens,
        "longest_pad": int(found.pad_N.max(initial=0)),
        "failed": found.failed,
        "untouched": found.untouched,
        "counts": {
            str(stride): np.bincount(found.position_N % stride, minlength=stride).tolist()
            for stride in found.strides
        },
    }
