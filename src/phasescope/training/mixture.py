"""What one optimizer step reads, in parts of equal shape, and what it loses on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..text.corpus import Corpus, Ids
from .data import IGNORED, Batch
from .loss import CrossEntropy, headless
from .robust import key_phases, phase_weights
from .settings import Progress, Training

RECORDS, TEXT = "records", "text"


@dataclass(frozen=True)
class Part:
    """Sequences that are read in one forward.

    Attributes:
        kind: `records` or `text`.
        ids_BT: the tokens.
        labels_BT: the token itself where it carries loss, and `IGNORED` elsewhere.
        weight: of the part's mean loss in the step's sum.
        shift: by how many tokens the grids are moved back while it is read.
        phases_BK: at which phase the record of each token that carries loss stands, where that matters.
        share_S: what a token weighs at each of those phases; None for 1.
    """

    kind: str
    ids_BT: Tensor
    labels_BT: Tensor
    weight: float
    shift: int = 0
    phases_BK: Tensor | None = None
    share_S: Tensor | None = None

    @property
    def places_K(self) -> Tensor:
        """Where its sequences carry loss; the same places in all of them."""
        places_K = (self.labels_BT[0] != IGNORED).nonzero()[:, 0]
        carries_BT = self.labels_BT != IGNORED
        if int(carries_BT.sum()) != len(places_K) * len(carries_BT) or not carries_BT[:, places_K].all():
            raise ValueError("the rows of a part carry loss in different places")
        return places_K


def parts_of(
    settings: Training, progress: Progress, corpus: Corpus | None, process: int, processes: int
) -> Iterator[Part]:
    """This process's parts of one step; records first.

    Draws depend on seed and step alone: all processes draw the same sequences and take every n-th.
    """
    shifts = np.random.default_rng([settings.seed, progress.step, 2])
    stride = settings.compression.stride if settings.compression else 1
    every = processes * settings.accumulate
    for kind, (ids, labels), weight in _batches(settings, progress, corpus):
        drawn = shifts.integers(stride, size=settings.accumulate)  # one shift a part, in all its processes
        for piece in range(settings.accumulate):
            mine = slice(process * settings.accumulate + piece, None, every)
            part = Part(
                kind,
                torch.from_numpy(ids[mine]),
                torch.from_numpy(labels[mine]),
                weight / settings.accumulate,
                int(drawn[piece]) if settings.random_shift else 0,
            )
            yield _by_phase(part, settings, stride, progress) if settings.robust else part


def loss_of(model: Any, part: Part, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Over the tokens that carry loss: weighted mean cross-entropy, accuracy, and each loss, [B, K] in nats."""
    places_K = part.places_K
    labels_BK = part.labels_BT[:, places_K]
    shares = None if part.share_S is None or part.phases_BK is None else part.share_S[part.phases_BK]
    with headless(model) as head:
        hidden_BKE = model(
            input_ids=part.ids_BT.to(device), logits_to_keep=(places_K - 1).to(device), use_cache=False
        ).logits
    loss, hits, losses_N = CrossEntropy.apply(
        hidden_BKE.flatten(0, 1),
        head.weight,
        labels_BK.flatten().to(device),
        None if shares is None else shares.flatten().to(device),
    )
    return loss, hits, losses_N.view(labels_BK.shape)


@torch.no_grad()
def held_out_loss(model: Any, corpus: Corpus, tokens: int, windows: int, rows: int = 16) -> float:
    """Mean loss in nats per token on the same windows of held-out text every time.

    Args:
        model: in evaluation mode.
        corpus: the text.
        tokens: length of a window; its first token is given.
        windows: at most so many.
        rows: windows of one forward.
    """
    ids_RT, labels_RT = map(torch.from_numpy, _labelled(corpus.spread("held_out", windows, tokens)))
    losses = [
        loss_of(model, Part(TEXT, ids_BT, labels_BT, 1.0), model.device)[0].item() * len(ids_BT)
        for ids_BT, labels_BT in zip(ids_RT.split(rows), labels_RT.split(rows), strict=True)
    ]
    return sum(losses) / len(ids_RT)


def rows_of(settings: Training) -> Iterator[tuple[str, int]]:
    """How many sequences a step has at every stage, with a name for a refusal."""
    if settings.task is not None:
        for pairs in settings.stages():
            yield f"sequences at {pairs} pairs", settings.rows_at(pairs)
    if settings.text is not None:
        yield "windows of text", settings.text.rows


def _batches(
    settings: Training, progress: Progress, corpus: Corpus | None
) -> Iterator[tuple[str, Batch, float]]:
    if settings.task is not None:
        rng = np.random.default_rng([settings.seed, progress.step])
        rows = settings.rows_at(progress.pairs)
        yield RECORDS, settings.task.batch(rows, progress.pairs, rng), 1.0
    if settings.text is not None:
        assert corpus is not None  # `train` has refused otherwise
        rng = np.random.default_rng([settings.seed, progress.step, 1])
        windows = corpus.windows("train", settings.text.rows, settings.text.tokens, rng)
        yield TEXT, _labelled(windows), settings.text.weight


def _by_phase(part: Part, settings: Training, stride: int, progress: Progress) -> Part:
    """The same part, with the phases of its records and what they weigh; text has no phases of its own."""
    if part.kind == TEXT:
        return part
    weighs = progress.phase_losses and progress.step >= settings.robust_after
    return replace(
        part,
        phases_BK=key_phases(part.ids_BT, part.places_K, stride, part.shift),
        share_S=phase_weights(progress.phase_losses, settings.robust) if weighs else None,
    )


def _labelled(ids: Ids) -> Batch:
    """Windows of text, of which all tokens but the first carry loss."""
    labels = ids.copy()
    labels[:, 0] = IGNORED
    return ids, labels
