"""What the steps of a training run read and compute, counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn

from ..grid import WindowGrid
from ..models import CompressedQwen3ForCausalLM
from ..models.attention import BLOCK
from .muon import STEPS as NEWTON_SCHULZ
from .settings import Training

BACKWARD = 2.0  # of a product's forward work
ATTENTION_BACKWARD = 2.5  # scores are computed again


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
        rows, tokens = settings.rows_at(pairs), round(mean_length(settings, pairs))
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
    tail = delay = 0
    if settings.compression is not None:
        tail, delay = settings.compression.tail, int(not settings.compression.closing)
        grids = [heads[0] for heads in settings.compression.grids(settings.layers, settings.kv_heads)]
    keys = sum(_read_together(grid, tokens, tail, block, delay) for grid in grids)
    attention = 4 * settings.heads * settings.head_dim * keys
    return (1 + BACKWARD) * products + (1 + ATTENTION_BACKWARD + again) * attention


def mean_length(settings: Training, pairs: int) -> float:
    """Tokens of a sequence of records: the gaps are 0 or 2 (0 if packed), the fillers around them uniform."""
    assert settings.task is not None  # the caller has looked
    gaps = 0 if settings.task.packed else pairs - 1
    return 4 * pairs + gaps + sum(settings.task.around(pairs)) / 2


def _read_together(grid: WindowGrid | None, tokens: int, tail: int, block: int, delay: int) -> int:
    """Queries × keys of one head and layer; without a grid every query meets every token.

    An entry is visible `delay` tokens after the one that closes its window.
    """
    if grid is None:
        return tokens * tokens
    total = 0
    for first in range(0, tokens, block):
        end = min(first + block, tokens)
        closed = grid.closed(first + 1 - delay)
        open_ = grid.closes(closed - 1) + 1 if closed else 0
        if grid.width < grid.stride:
            open_ = min(open_, grid.width)  # the tokens between windows stay raw for ever
        raw = end - max(0, min(open_, first + min(0, 1 - tail)))
        total += (end - first) * (grid.closed(end - delay) + raw)
    return total


def _newton_schulz(shape: tuple[int, int]) -> int:
    """Work of orthogonalising one matrix: three products a step, on its shorter side."""
    short, long = sorted(shape)
    return NEWTON_SCHULZ * (4 * short * short * long + 2 * short**3)
