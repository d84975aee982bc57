"""What a training run takes, before it is started, in lines: tokens, floating-point work, hours, memory, cache."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from ..errors import UnknownNameError, UsageError
from ..grid import NEVER, WindowGrid
from ..models import CompressedQwen3ForCausalLM
from ..text.corpus import Corpus
from ..wording import size_words, time_words
from .activations import activation_bytes
from .loss import LEAST_ROWS, MANY_LOGITS
from .mixture import loss_of, parts_of
from .optim import optimizers_of
from .settings import Progress, Training
from .trainer import check_shares
from .work import Sizes, Work, mean_length, sizes_of, work_of

MOST_MEASURED = 30_000_000  # parameters of a model that is tried out here
FLOAT, HALF = 4, 2  # bytes


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device as its maker describes it: dense FLOP/s in bfloat16 and float32, and bytes of memory."""

    bf16: float
    fp32: float
    memory: float


ACCELERATORS = {
    "a100": Accelerator(312e12, 19.5e12, 80e9),
    "b200": Accelerator(2250e12, 75e12, 180e9),
    "h100": Accelerator(989e12, 67e12, 80e9),
    "h200": Accelerator(989e12, 67e12, 141e9),
    "l40s": Accelerator(362e12, 91.6e12, 48e9),
    "mi300x": Accelerator(1307e12, 163.4e12, 192e9),
    "rtx4090": Accelerator(165e12, 82.6e12, 24e9),
}
HERE = "here"
"""Data sheets: NVIDIA A100, B200, H100 and H200 (SXM), L40S, RTX 4090; AMD MI300X."""


def plan(
    settings: Training,
    *,
    processes: int = 1,
    accelerator: str | None = None,
    utilisation: float = 0.4,
) -> list[str]:
    """What a run takes, in lines.

        FLOPs = 6 · (matrix entries of the layers · tokens + vocabulary · hidden size · scored tokens)
                + 3.5 · 4 · layers · query heads · head_dim · (queries × keys read together)
        hours = FLOPs / (devices · peak FLOP/s · utilisation) / 3600, and Muon's at the peak of float32

    Of keys, those count that are computed with: all for full attention; the entries, and the raw tokens of a block of
    queries, for a compressed cache. Beyond `attention.BLOCK` tokens a block is computed once more before its backward
    pass, 4.5 instead of 3.5. An indexer's scores are left out. Where records are read, a run is somewhere between
    one that stays at the cheapest stage of the curriculum and one at the dearest.

    Args:
        settings: of the run.
        processes: devices.
        accelerator: a name in `ACCELERATORS`, h100 by default; or `here`, which tries a few steps on this machine, with
            one process; small models only.
        utilisation: share of the peak that is reached; 0.4 is usual for models of this size.

    Raises:
        UsageError: for numbers that make no sense, a step that so many processes cannot share evenly, or a model that
            is too large to be tried out here.
        UnknownNameError: for an accelerator that is not known.
    """
    name = accelerator or "h100"
    if name not in (HERE, *ACCELERATORS):
        raise UnknownNameError(f"unknown accelerator {name!r}; known: {', '.join(ACCELERATORS)}, {HERE}")
    if processes < 1 or not 0 < utilisation <= 1:
        raise UsageError(
            f"{processes} processes at a utilisation of {utilisation}: give at least 1, and a share above 0 up to 1"
        )
    check_shares(settings, processes)
    sizes = sizes_of(settings)
    works = [work_of(settings, sizes, pairs) for pairs in _stages(settings)]
    lines = [_model_line(settings, sizes), _tokens_line(settings, works), _flops_line(works)]
    if name == HERE:
        lines.extend(_measured_lines(settings, sizes))
    else:
        device, who = ACCELERATORS[name], f"{processes} × {name}"
        lines.append(_hours_line(settings, works, device, who, processes, utilisation))
        lines.extend(_memory_lines(settings, sizes, device, processes))
    return [*lines, _cache_line(settings)]


def seconds_per_step(settings: Training, pairs: int, steps: int = 3) -> float:
    """The quickest of a few steps on this machine, with random tokens for text."""
    torch.manual_seed(settings.seed)
    model = CompressedQwen3ForCausalLM(settings.architecture())
    optimizers, text = optimizers_of(model, settings), any_text(settings)
    seconds = []
    for step in range(steps + 1):
        started = time.perf_counter()
        for part in parts_of(settings, Progress(step=step, pairs=pairs), text, 0, 1):
            (part.weight * loss_of(model, part, torch.device("cpu"))[0]).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def any_text(settings: Training) -> Corpus:
    """Random tokens where a step reads text; a cost depends on nothing else of it."""
    return cast(Corpus, _AnyText(settings))


@dataclass(frozen=True)
class _AnyText:
    """As much of a corpus as a step asks for."""

    settings: Training

    def windows(self, part: str, rows: int, tokens: int, rng: np.random.Generator) -> Any:
        return rng.integers(0, self.settings.vocabulary_size, size=(rows, tokens))


def _stages(settings: Training) -> list[int]:
    return settings.stages() if settings.task is not None else [0]


def _model_line(settings: Training, sizes: Sizes) -> str:
    return (
        f"model       {settings.layers} layers × {settings.hidden_size}, {settings.heads} query and "
        f"{settings.kv_heads} KV heads of {settings.head_dim}: {sizes.total:,} parameters, "
        f"{sizes.embeddings:,} of them in embeddings and head, {sizes.gates:,} in compressors"
    )


def _tokens_line(settings: Training, works: list[Work]) -> str:
    parts = []
    if settings.text is not None:
        parts.append(f"{_short(works[0].text)} of text")
    if settings.task is not None:
        records, last = _range([work.records for work in works]), _short(works[-1].records)
        parts.append(f"{records} of records, {last} if all had {settings.max_pairs}")
    return f"tokens      {' and '.join(parts)}, in {settings.steps:,} steps"


def _flops_line(works: list[Work]) -> str:
    muon = f", and {works[0].muon:.2e} for Muon in float32" if works[0].muon else ""
    return f"work        {_range([work.flops for work in works], '.2e')} FLOPs forward and backward{muon}"


def _hours_line(
    settings: Training, works: list[Work], device: Accelerator, who: str, processes: int, utilisation: float
) -> str:
    """Every process orthogonalises all matrices with `ddp`, its share of them with `fsdp`."""
    peak = device.bf16 if settings.precision == "bf16" else device.fp32
    passes = [work.flops / (processes * peak * utilisation) for work in works]
    muon = works[0].muon / (device.fp32 * utilisation)
    hours = _spans([seconds + muon for seconds in passes])
    if muon and processes > 1:
        hours += f" with ddp, {_spans([seconds + muon / processes for seconds in passes])} with fsdp"
    return f"time        {hours} on {who} at {utilisation:.0%} of {peak / 1e12:,.0f} TFLOP/s ({settings.precision})"


def _memory_lines(settings: Training, sizes: Sizes, device: Accelerator, processes: int) -> Iterator[str]:
    """Per device: what each way of being parallel keeps, and about what the passes need."""
    moved = sum(rows * columns for rows, columns in sizes.matrices) if settings.optimizer == "muon" else 0
    states = FLOAT * (2 * (sizes.total - moved) + moved)
    copies = HALF * sizes.total if settings.precision == "bf16" else 0
    active, logits = _largest_part(settings, processes)
    layer = (sizes.total - sizes.embeddings) / settings.layers + sizes.embeddings
    ways = {"ddp": (1, copies)}
    if processes > 1:
        ways["fsdp"] = (processes, round(FLOAT * layer))  # gathered: one layer, embeddings and head
    for way, (share, gathered) in ways.items():
        kept = {"weights": FLOAT * sizes.total, "gradients": FLOAT * sizes.total, "optimizer": states}
        parts = {name: size / share for name, size in kept.items()} | {
            "gathered" if share > 1 else "bf16 copies": gathered,
            "activations": active,
            "logits": logits,
        }
        shares = ", ".join(f"{name} {size_words(size)}" for name, size in parts.items() if size)
        total = sum(parts.values())
        note = "" if total < device.memory else "; too much: raise accumulate"
        yield f"memory      {way}: about {size_words(total)} of {size_words(device.memory)} a device ({shares}){note}"


def _largest_part(settings: Training, processes: int) -> tuple[float, float]:
    """Bytes of activations, and of logits with their gradients, of the largest part of a step."""
    shares = processes * settings.accumulate
    parts = []
    if settings.text is not None:
        rows = max(1, settings.text.rows // shares)
        parts.append((rows * settings.text.tokens, rows * (settings.text.tokens - 1), settings.text.tokens))
    if settings.task is not None:
        pairs = settings.max_pairs
        rows = max(1, settings.rows_at(pairs) // shares)
        length = round(mean_length(settings, pairs))
        parts.append((rows * length, rows * pairs, length))
    tokens, scored, length = max(parts)
    rows = min(scored, max(LEAST_ROWS, MANY_LOGITS // settings.vocabulary_size))
    matrix = FLOAT * settings.vocabulary_size * settings.hidden_size
    logits = 2 * FLOAT * rows * settings.vocabulary_size + matrix
    return settings.layers * tokens * activation_bytes(settings, length), logits


def _cache_line(settings: Training) -> str:
    """Bytes of 1,000 tokens in bfloat16, entries with the 4 bytes that say when they close."""
    whole = 2 * HALF * settings.layers * settings.kv_heads * settings.head_dim * 1000
    line = f"cache       {size_words(whole)} for 1,000 tokens in bfloat16"
    if settings.compression is None:
        return line
    compression = settings.compression
    grid = WindowGrid(compression.width, compression.stride)
    width = (1 if compression.binding else 2) * HALF * settings.kv_heads * settings.head_dim
    if "topk" in compression.settings:
        width += HALF * int(compression.settings.get("index_dim", 128))
    kept = settings.layers * (width + 4) * 1000 / compression.stride
    wait = grid.longest_wait()
    if wait == NEVER:
        kept += whole  # what lies between windows is read raw for ever, and `EntryCache` forgets from the front alone
        beside = "all raw tokens included, as a grid with gaps forgets none"
    else:
        beside = f"beside at most {max(wait, compression.tail)} raw tokens a layer"
    return f"{line} raw, {size_words(kept)} compressed ({kept / whole:.1%}), {beside}"


def _measured_lines(settings: Training, sizes: Sizes) -> Iterator[str]:
    if sizes.total > MOST_MEASURED:
        raise UsageError(
            f"a model of {sizes.total:,} parameters is not tried out here, only up to {MOST_MEASURED:,}; name an "
            "accelerator"
        )
    for pairs in _stages(settings):
        seconds = seconds_per_step(settings, pairs)
        stage = f" at {pairs} records" if settings.task is not None else ""
        run = _spans([seconds * settings.steps])
        yield f"here        {seconds:.3f} s a step{stage} on one process, {run} if all steps were such"


def _range(values: list[Any], form: str = "") -> str:
    """The least and the most, or the one value."""
    low, high = (format(x, form) if form else _short(x) for x in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _spans(seconds: list[float]) -> str:
    """The shortest and the longest time."""
    low, high = (time_words(x) for x in (min(seconds), max(seconds)))
    return low if low == high else f"{low} to {high}"


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return f"{number:,.0f}"
