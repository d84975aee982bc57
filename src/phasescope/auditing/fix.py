"""The benchmark written anew with pads in front of its prompts, so that it visits all phases evenly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..text.locate import Locator
from ..text.padding import FAILED, FrontPadder, pad_text
from .coverage import Ints
from .pads import pads
from .readers import AbstractReader, Pad
from .reading import Placed, Report, batches, checksum
from .samples import Columns, Sample
from .writing import writing


@dataclass(frozen=True)
class Fix:
    """What was done to balance a benchmark.

    Attributes:
        out: the new file.
        strides: that are balanced, jointly.
        pad_N: pad tokens of each placed sample, 0 where none was needed or none could be had.
        failed: samples that needed pads and could not be given any without changing their own tokens.
        untouched: samples without a token position, which stay as they are.
        position_N: token positions in the new file.
    """

    out: Path
    strides: tuple[int, ...]
    pad_N: Ints
    failed: int
    untouched: int
    position_N: Ints

    @property
    def padded(self) -> int:
        """Samples with a pad."""
        return int((self.pad_N > 0).sum())

    @property
    def tokens(self) -> int:
        """Pad tokens in all."""
        return int(self.pad_N.sum())


def fix(
    source: str,
    reader: AbstractReader,
    columns: Columns,
    locator: Locator,
    placed: Placed,
    strides: Sequence[int],
    out: Path,
    report: Report = lambda done, total: None,
) -> Fix:
    """Write the benchmark with the fewest pads that even out the phases of the strides.

    Args:
        source: as it was read.
        reader: of its format.
        columns: as they were asked for.
        locator: as it was read with.
        placed: what was read.
        strides: to balance, jointly.
        out: the new file; another one than the source.
        report: told how far the pads are.

    Raises:
        UsageError: if the source is a log, would be overwritten, or does not read the same twice.
    """
    if not reader.fixable:
        raise UsageError(
            f"{source} is a log of answers, not a benchmark; give --fix the benchmark's own file"
        )
    if Path(source).exists() and out.exists() and out.samefile(source):
        raise UsageError(f"--fix {out} would overwrite the benchmark; name another file")
    wanted_N = pads(placed.position_N, strides)
    form_N, text = _forms(source, reader, columns, locator, placed, wanted_N, report)
    pad_N = np.where(form_N == FAILED, 0, wanted_N) if text else wanted_N
    chosen = {
        int(index): Pad(int(n), pad_text(int(n), int(form)) if text else None)
        for index, n, form in zip(placed.index_N, pad_N, form_N, strict=True)
        if n
    }
    # A file that was looked up in its text may have no column of positions, and the other way round.
    reader.write(source, out, placed.columns, chosen.get)
    return Fix(
        out=out,
        strides=tuple(strides),
        pad_N=pad_N,
        failed=int(((form_N == FAILED) & (wanted_N > 0)).sum()) if text else 0,
        untouched=placed.total - len(placed.index_N),
        position_N=placed.position_N + pad_N,
    )


def write_pads(path: Path, placed: Placed, fixed: Fix) -> None:
    """Which sample got how many pad tokens, as CSV; samples are numbered from 1 in the order of the file."""
    with writing(path) as file:
        file.write(b"sample,pad_tokens,position_before,position_after\n")
        for index, n, before, after in zip(
            placed.index_N.tolist(),
            fixed.pad_N.tolist(),
            placed.position_N.tolist(),
            fixed.position_N.tolist(),
            strict=True,
        ):
            file.write(f"{index + 1},{n},{before},{after}\n".encode())


def _forms(
    source: str,
    reader: AbstractReader,
    columns: Columns,
    locator: Locator,
    placed: Placed,
    wanted_N: Ints,
    report: Report,
) -> tuple[Ints, bool]:
    """The form of every pad, and whether pads are text: they are not where a file gives positions only."""
    text = bool(placed.columns.prompt)
    form_N = np.zeros(len(wanted_N), dtype=np.int64)
    if text and locator.tokenizer is None:
        raise UsageError(f"{source} has prompts, and pads are measured in tokens; give --tokenizer")
    if not text:
        return form_N, False
    wanted = dict(zip(placed.index_N.tolist(), wanted_N.tolist(), strict=True))
    rank = {index: n for n, index in enumerate(placed.index_N.tolist())}
    padder, number = FrontPadder(locator), 0
    for batch, _, _ in batches(source, reader, columns, locator):
        needing: list[tuple[int, Sample, int]] = []
        for sample in batch:
            if number >= placed.total or checksum(sample) != placed.prints[number]:
                raise _changed(source)
            if wanted.get(number):
                needing.append((rank[number], sample, wanted[number]))
            number += 1
        forms = padder.fit([sample for _, sample, _ in needing], [n for *_, n in needing])
        for (n, *_), form in zip(needing, forms, strict=True):
            form_N[n] = form
        report(number, placed.total)
    if number != placed.total:
        raise _changed(source)
    return form_N, True


def _changed(source: str) -> UsageError:
    return UsageError(
        f"{source} gave other samples when it was read again; leave the file alone, or let the generator draw "
        "from its parameter `rng`"
    )
