"""The fewest pad tokens that even out the phases of a set of positions."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm

import numpy as np

from ..errors import UsageError
from .coverage import Ints

MOST = 2048
"""Largest common period that is balanced: pads stay below it, and prompts grow by half of it on average."""


def common_period(strides: Sequence[int]) -> int:
    """The least common multiple of the strides to balance.

    Raises:
        UsageError: for none, one below 2, or a common period above `MOST`.
    """
    if not strides or min(strides) < 2:
        raise UsageError(f"strides {list(strides)}: nothing to balance; give one or more of at least 2")
    period = lcm(*strides)
    if period > MOST:
        raise UsageError(
            f"strides {', '.join(map(str, strides))} repeat together every {period:,} tokens; pads are kept below "
            f"{MOST:,}, so balance fewer strides: give only those that matter with --stride"
        )
    return period


def pads(position_N: Ints, strides: Sequence[int]) -> Ints:
    """How many tokens to put in front of each sample so that every stride's phases are visited evenly.

    With L the common period and N = q·L + r samples, every residue mod L is visited q or q + 1 times, and
    every phase of every stride ⌊N/S⌋ or ⌈N/S⌉ times. Tokens can only be added, so residues move forward
    round a circle: with f_k the samples that pass from residue k to k + 1,

        f_k = f_(k−1) + n_k − q − e_k        e_k ∈ {0, 1}, Σ e_k = r        cost Σ f_k

    at the least cost some f_k is 0, and samples keep their order round the circle. For one stride every
    choice of the r residues that get one more is balanced and the cheapest is taken, so the pads are the
    fewest there are. For several, the r residues stand in a row whose step shares no divisor with L, which
    balances all strides at once; the cheapest of many such rows is taken.

    Args:
        position_N: token positions.
        strides: to balance, jointly.

    Returns:
        pads per sample, 0 to L − 1.
    """
    period = common_period(strides)
    residue_N = position_N % period
    count_L = np.bincount(residue_N, minlength=period).astype(np.int64)
    each, more = divmod(len(position_N), period)
    cut, quota_L = _free(count_L, each, more) if len(set(strides)) == 1 else _row(count_L, each, more)
    # Read from the residue behind the free edge, samples and places pair off in order.
    order_N = np.argsort((residue_N - cut) % period, kind="stable")
    target_N = np.repeat(np.roll(np.arange(period), -cut), np.roll(quota_L, -cut))
    result_N = np.zeros(len(position_N), dtype=np.int64)
    result_N[order_N] = (target_N - residue_N[order_N]) % period
    return result_N


def _row(count_L: Ints, each: int, more: int) -> tuple[int, Ints]:
    """The cheapest row of residues that get one more: the residue behind a free edge, and the quotas."""
    period = len(count_L)
    best: tuple[int, int, Ints] | None = None
    for step in _steps(period, more):
        for first in range(period if more else 1):
            quota_L = np.full(period, each, dtype=np.int64)
            quota_L[(first + step * np.arange(more)) % period] += 1
            flow_L = np.cumsum(count_L - quota_L)
            least = int(flow_L.argmin())
            cost = int(flow_L.sum()) - period * int(flow_L[least])
            if best is None or cost < best[0]:
                best = (cost, (least + 1) % period, quota_L)
    assert best is not None
    return best[1], best[2]


def _steps(period: int, more: int) -> list[int]:
    """Steps from one residue of a row to the next: 1, and those near an even spread, as many as time allows."""
    spread = period / max(more, 1)
    coprime = [step for step in range(2, period // 2 + 1) if gcd(step, period) == 1]
    return [1, *sorted(coprime, key=lambda step: abs(step - spread))[: max(1, 8192 // period)]]


def _free(count_L: Ints, each: int, more: int) -> tuple[int, Ints]:
    """The cheapest choice of residues that get one more: the residue behind a free edge, and the quotas.

    Behind a free edge, with g_k the surplus up to residue k, the number E_k of residues that got one more
    is bounded by every later surplus, E_k ≤ min over j ≥ k of g_j, and grows by at most one a step. The cost
    is Σ (g_k − E_k), so the largest E is the cheapest; it is found for all edges at once.
    """
    period = len(count_L)
    cut_C1 = np.arange(period)[:, None]
    surplus_CL = np.cumsum((count_L - each)[(cut_C1 + np.arange(period)) % period], axis=1)
    bound_CL = np.minimum.accumulate(surplus_CL[:, ::-1], axis=1)[:, ::-1]
    extra_CL = np.zeros((period, period + 1), dtype=np.int64)
    for k in range(period):
        extra_CL[:, k + 1] = np.minimum(np.minimum(extra_CL[:, k] + 1, bound_CL[:, k]), more)
    possible = (bound_CL[:, 0] >= 0) & (extra_CL[:, -1] == more)
    cost_C = np.where(possible, (surplus_CL - extra_CL[:, 1:]).sum(axis=1), np.iinfo(np.int64).max)
    cut = int(cost_C.argmin())
    quota_L = np.empty(period, dtype=np.int64)
    quota_L[(cut + np.arange(period)) % period] = each + np.diff(extra_CL[cut])
    return cut, quota_L
