"""Records at phases that are recalled badly weigh more: robust training over phases."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SMOOTHING = 0.05  # weight of the newest step in the running means


def key_phases(ids_BT: Tensor, places_K: Tensor, stride: int, shift: int = 0) -> Tensor:
    """The phase at which each recalled value's record stands, [B, K].

        phase = (position of the key's first occurrence + shift) mod S

    Args:
        ids_BT: sequences in which the token before each recalled value is its key, met before in its record.
        places_K: where the recalled values are.
        stride: S.
        shift: by how many tokens the grids are moved back.
    """
    key_BK1 = ids_BT[:, places_K - 1, None]
    first_BK = (ids_BT[:, None, :] == key_BK1).to(torch.uint8).argmax(-1)
    return (first_BK + shift) % stride


def phase_weights(losses_S: Sequence[float], power: float) -> Tensor:
    """What a record at each phase weighs; their mean is 1.

        w_p = L_p^power / mean over phases of L^power

    Source: exponent and running losses in place of the exponentiated ascent of group DRO (arXiv 1911.08731), whose
        groups are our phases. With the weights held fixed, the gradient is that of the power mean of the phases'
        losses with exponent 1 + power, up to a factor.
    Differs: the weights follow from the running losses alone, so that nothing accumulates.
    """
    raised_S = torch.tensor(list(losses_S), dtype=torch.float64).clamp(min=1e-6) ** power
    return (raised_S / raised_S.mean()).float()


def phase_sums(losses_BK: Tensor, phases_BK: Tensor, stride: int) -> Tensor:
    """Sum of the losses and number of the records at each phase, both over the number of records: [2, S]."""
    phases_N = phases_BK.flatten().to(losses_BK.device)
    both_2N = torch.stack([losses_BK.flatten(), torch.ones_like(losses_BK).flatten()])
    return both_2N.new_zeros(2, stride).index_add(1, phases_N, both_2N) / losses_BK.numel()


def running_losses(old_S: Sequence[float], sums_2S: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The running mean loss of each phase after a step; a phase that the step did not visit keeps its own.

    Before its first visit a phase counts as the mean of all.
    """
    total_S, count_S = sums_2S
    start = old_S or [sum(total_S) / sum(count_S)] * len(total_S)
    return tuple(
        old + SMOOTHING * (total / count - old) if count else old
        for old, total, count in zip(start, total_S, count_S, strict=True)
    )
