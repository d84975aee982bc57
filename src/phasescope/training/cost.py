"""What a training run takes, before it is started: parameters, tokens, floating-point work, hours, memory, cache."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..corpus import Corpus
from ..errors import UnknownNameError, UsageError
from ..grid import NEVER, WindowGrid
from ..models import CompressedQwen3ForCausalLM
from ..models.attention import BLOCK, STRIP
from .loss import LEAST_ROWS, MANY_LOGITS
from .mixture import loss_of, parts_of
from .muon import STEPS as NEWTON_SCHULZ
from .optim import optimizers_of
from .settings import Progress, Training
from .trainer import check_shares

BACKWARD = 2.0  # of a product's forward work
ATTENTION_BACKWARD = 2.5  # scores are computed again
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


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parameters of a model, exactly.

    Attributes:
        total: all of them.
        embeddings: of the embedding, and of the head where it is a matrix of its own.
        gates: of the compressors.
        multiplied: entries of the layers' matrices, each of which is multiplied with every token.
        matrices: shapes of the matrices that Muon moves.
    """

    total: int
    embeddings: int
    gates: int
    multiplied: int
    matrices: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What the steps of a run read and compute, at one stage of the curriculum from beginning to end.

    Attributes:
        text, records: tokens read.
        flops: of forward and backward passes.
        muon: of Newton–Schulz in all steps, by whoever does all of it.
    """

    text: int
    records: int
    flops: float
    muon: float


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


def sizes_of(settings: Training) -> Sizes:
    """The parameters of the model that the settings make, counted on one that holds no memory."""
    with torch.device("meta"):
        model: Any = CompressedQwen3ForCausalLM(settings.architecture())
    ends = {model.model.embed_tokens.weight, model.lm_head.weight}
    gates = [param for name, param in model.named_parameters() if ".compressor." in name]
    linear = [m.weight for m in model.model.layers.modules() if isinstance(m, nn.Linear)]
    inner = [
        tuple(param.shape)
        for name, param in model.named_parameters()
        if "layers" in name and param.ndim == 2 and ".compressor." not in name
    ]
    return Sizes(
        total=sum(param.numel() for param in model.parameters()),
        embeddings=sum(param.numel() for param in ends),
        gates=sum(param.numel() for param in gates),
        multiplied=sum(param.numel() for param in linear),
        matrices=cast(tuple[tuple[int, int], ...], tuple(inner)),
    )


def work_of(settings: Training, sizes: Sizes, pairs: int) -> Work:
    """Tokens and floating-point work of all steps at one stage; sequences of records have their mean length."""
    text = records = 0
    flops = 0.0
    if settings.text is not None:
        tokens = settings.text.tokens
        text = settings.text.rows * tokens
        flops += settings.text.rows * sequence_flops(settings, sizes, tokens, tokens - 1)
    if settings.task is not None:
        rows, tokens = settings.rows_at(pairs), round(_mean_length(settings, pairs))
        records = rows * tokens
        flops += rows * sequence_flops(settings, sizes, tokens, pairs)
    muon = sum(map(_newton_schulz, sizes.matrices)) if settings.optimizer == "muon" else 0
    steps = settings.steps
    return Work(steps * text, steps * records, steps * flops, float(steps * muon))


def sequence_flops(settings: Training, sizes: Sizes, tokens: int, scored: int, block: int = BLOCK) -> float:
    """Forward and backward work on one sequence; see `plan`.

    Args:
        settings: of the run.
        sizes: of its model.
        tokens: of the sequence.
        scored: how many of them carry loss.
        block: queries that are read together.
    """
    again = 1.0 if settings.compression is not None and tokens > BLOCK else 0.0
    products = 2 * (sizes.multiplied * tokens + settings.vocabulary_size * settings.hidden_size * scored)
    grids: list[WindowGrid | None] = [None] * settings.layers
    tail = 0
    if settings.compression is not None:
        tail = settings.compression.tail
        grids = [heads[0] for heads in settings.compression.grids(settings.layers, settings.kv_heads)]
    keys = sum(_read_together(grid, tokens, tail, block) for grid in grids)
    attention = 4 * settings.heads * settings.head_dim * keys
    return (1 + BACKWARD) * products + (1 + ATTENTION_BACKWARD + again) * attention


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


def _mean_length(settings: Training, pairs: int) -> float:
    """Tokens of a sequence of records: the gaps are 0 or 2, the fillers around them uniform."""
    assert settings.task is not None  # the caller has looked
    return 4 * pairs + (pairs - 1) + min(settings.task.fillers, 4 * pairs) / 2


def _read_together(grid: WindowGrid | None, tokens: int, tail: int, block: int) -> int:
    """Queries × keys of one head and layer; without a grid every query meets every token."""
    if grid is None:
        return tokens * tokens
    total = 0
    for first in range(0, tokens, block):
        end = min(first + block, tokens)
        closed = grid.closed(first + 1)
        open_ = grid.closes(closed - 1) + 1 if closed else 0
        if grid.width < grid.stride:
            open_ = min(open_, grid.width)  # the tokens between windows stay raw for ever
        raw = end - max(0, min(open_, first + min(0, 1 - tail)))
        total += (end - first) * (grid.closed(end) + raw)
    return total


def _newton_schulz(shape: tuple[int, int]) -> int:
    """Work of orthogonalising one matrix: three products a step, on its shorter side."""
    short, long = sorted(shape)
    return NEWTON_SCHULZ * (4 * short * short * long + 2 * short**3)


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
    told = _spans([seconds + muon for seconds in passes])
    if muon and processes > 1:
        told += f" with ddp, {_spans([seconds + muon / processes for seconds in passes])} with fsdp"
    return f"time        {told} on {who} at {utilisation:.0%} of {peak / 1e12:,.0f} TFLOP/s ({settings.precision})"


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
        told = ", ".join(f"{name} {_bytes(size)}" for name, size in parts.items() if size)
        total = sum(parts.values())
        note = "" if total < device.memory else "; too much: raise accumulate"
        yield f"memory      {way}: about {_bytes(total)} of {_bytes(device.memory)} a device ({told}){note}"


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
        length = round(_mean_length(settings, pairs))
        parts.append((rows * length, rows * pairs, length))
    tokens, scored, length = max(parts)
    rows = min(scored, max(LEAST_ROWS, MANY_LOGITS // settings.vocabulary_size))
    matrix = FLOAT * settings.vocabulary_size * settings.hidden_size
    logits = 2 * FLOAT * rows * settings.vocabulary_size + matrix
    return settings.layers * tokens * activation_bytes(settings, length), logits


def activation_bytes(settings: Training, length: int) -> float:
    """Bytes that one layer keeps of one token for its backward pass, counted on layers of the real size.

    Two lengths and two depths are read, and what grows with both is taken.
    """
    short, long = (BLOCK // 4, BLOCK // 2) if length <= BLOCK else (BLOCK + STRIP, 2 * BLOCK + STRIP)
    kept = {}
    for layers in (1, 2):
        thin = _thin(settings, layers)
        for tokens in (short, long):
            kept[layers, tokens] = _kept_bytes(thin, settings, tokens)
    grown = kept[2, long] - kept[1, long] - kept[2, short] + kept[1, short]
    return grown / (long - short)


def _thin(settings: Training, layers: int) -> Any:
    """A model of few layers and few words, the widths as they are."""
    config = settings.architecture().to_dict()
    plan_ = config.get("compression")
    if plan_ is not None and not isinstance(plan_["shift"], int):
        plan_ = {**plan_, "shift": plan_["shift"][0] if isinstance(plan_["shift"][0], int) else 0}
    kind = type(settings.architecture())
    changed = {"num_hidden_layers": layers, "vocab_size": 8, "layer_types": None, "compression": plan_}
    return CompressedQwen3ForCausalLM(kind(**{**config, **changed}))


def _kept_bytes(model: Any, settings: Training, tokens: int) -> int:
    held: dict[int, Any] = {}
    own = {param.untyped_storage().data_ptr() for param in model.parameters()}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage
        return x

    ids_BT = torch.zeros(1, tokens, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, _as_it_is),
        torch.autocast("cpu", torch.bfloat16, settings.precision == "bf16"),
    ):
        loss = model(input_ids=ids_BT, logits_to_keep=1, use_cache=False).logits.sum()
    del loss
    return sum(storage.nbytes() for storage in held.values())


def _as_it_is(x: Tensor) -> Tensor:
    return x


def _cache_line(settings: Training) -> str:
    """Bytes of 1,000 tokens in bfloat16, entries with the 4 bytes that say when they close."""
    whole = 2 * HALF * settings.layers * settings.kv_heads * settings.head_dim * 1000
    told = f"cache       {_bytes(whole)} for 1,000 tokens in bfloat16"
    if settings.compression is None:
        return told
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
    return f"{told} raw, {_bytes(kept)} compressed ({kept / whole:.1%}), {beside}"


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
    low, high = (_span(x) for x in (min(seconds), max(seconds)))
    return low if low == high else f"{low} to {high}"


def _span(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:,.2f} {unit}"
    return f"{seconds:.2f} seconds"


def _short(number: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return f"{number:,.0f}"


def _bytes(size: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size / 1e3:,.1f} kB"
