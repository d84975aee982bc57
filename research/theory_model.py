"""The idealised induction task: what a gate that folds keys before the query is known can do at best; numpy only.

One window holds W tokens with keys k_s ~ N(0, I_d). Its entry is K = Σ_s a_s k_s, with gate weights a_s ≥ 0 that sum to
1. There are N such entries. The query is a noisy copy of one key of one window, q = k_p + σ ε. It finds its window if
that entry has the largest inner product with q among all N.

Everything depends on the gate through one number per slot, the cosine between entry and token,

    u_p = a_p / √(Σ_s a_s²)

and on the *signal* r = √(d / (1 + σ²)). Divided by |q| √(Σ a²), scores are, for d large enough that |q|² is its mean,

    right entry   ~ N( u_p r,  1 − u_p² / (1 + σ²) )
    every other   ~ N( 0, 1 ),  independently

so that the chance of finding a key in slot p is

    f(u) = ∫ φ(z) Φ( u r + z √(1 − u² / (1 + σ²)) )^{N−1} dz

exactly but for |q|² being taken at its mean; a Monte Carlo of the task itself (`simulate`) checks that.

Several heads, each with payloads and a gate of its own, find a key if any of them does:

    found_p = 1 − Π_h (1 − f(u_p^h))          objective J = mean over p of found_p

*Is the uniform gate stable?* It has u_p = u₀ = 1/√W for all p. Gates being softmax(b), a small δb of one head with sum
zero gives δu = δb / √W, and by second-order expansion the gradient flow ḃ = ∇J makes it grow at the rate

    one head:                   λ = (f″ − f′/u₀) / W²
    H heads, all alike:         λ = (1−f)^{H−1} (f″ − f′/u₀ − (H−1) f′² / (1−f)) / W²
    H heads, against each other λ = (1−f)^{H−1} (f″ − f′/u₀ + f′² / (1−f)) / W²

with f and its derivatives at u₀. Above 0 the even gate is unstable, and any small preference grows. Heads come apart
more readily than they leave the even gate together: the last rate is the largest.

Source: arXiv 2609.36322 has an idealised induction task with the same moral (the best compressor favours phases, and
    gradient flow finds stable preferences); its text is not at hand.
Differs: the task, the closed form and the rates above are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from phasescope.errors import UsageError

Floats = npt.NDArray[np.float64]

NODES = 200
"""Of the quadrature over z."""


@dataclass(frozen=True)
class Task:
    """The idealised induction task. Suffixes: W slots, H heads, Z quadrature nodes.

    Attributes:
        width: tokens per window, W.
        entries: entries among which the right one is looked for, N.
        channels: of a key, d.
        noise: SD σ of the query's noise, relative to the key's.
        heads: heads with payloads and gates of their own.

    Raises:
        UsageError: for numbers outside their range.
    """

    width: int = 8
    entries: int = 64
    channels: float = 16.0
    noise: float = 0.5
    heads: int = 1

    def __post_init__(self) -> None:
        for name, least in (("width", 2), ("entries", 2), ("heads", 1)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}; give a whole number of at least {least}"
                )
        if not (self.channels > 0 and self.noise >= 0):
            raise UsageError(
                f"channels {self.channels}, noise {self.noise}: give channels above 0 and noise from 0 on"
            )

    @property
    def signal(self) -> float:
        """R = √(d / (1 + σ²)), the mean score of an entry that is the key alone."""
        return float(np.sqrt(self.channels / (1 + self.noise**2)))

    @property
    def even(self) -> float:
        """u₀ = 1/√W, the cosine of every slot under the uniform gate."""
        return float(1 / np.sqrt(self.width))

    @cached_property
    def _nodes(self) -> tuple[Floats, Floats]:
        """Gauss–Legendre nodes over ±9 SD with the normal density in their weights."""
        node_Z, weight_Z = np.polynomial.legendre.leggauss(NODES)
        z_Z = 9 * node_Z
        return z_Z, 9 * weight_Z * np.exp(-(z_Z**2) / 2) / np.sqrt(2 * np.pi)

    def found(self, u: Floats | float) -> Floats:
        """f(u): probability that one head finds a key whose cosine with its entry is u; any shape."""
        z_Z, weight_Z = self._nodes
        at = np.asarray(u, dtype=np.float64)[..., None]
        shift_Z = at * self.signal + z_Z * np.sqrt(np.maximum(1 - at**2 / (1 + self.noise**2), 0))
        chance: Floats = np.exp((self.entries - 1) * log_ndtr(shift_Z)) @ weight_Z
        return chance

    def slope(self, u: Floats | float, step: float = 1e-4) -> Floats:
        """f′(u), by central differences."""
        at = np.asarray(u, dtype=np.float64)
        slope: Floats = (self.found(at + step) - self.found(at - step)) / (2 * step)
        return slope

    def bend(self, u: float, step: float = 1e-3) -> float:
        """f″(u), by central differences."""
        return float((self.found(u + step) - 2 * self.found(u) + self.found(u - step)) / step**2)

    def accuracy_W(self, gate_HW: Floats) -> Floats:
        """Probability that any head finds a key, slot by slot."""
        missed_W: Floats = np.prod(1 - self.found(cosine(gate_HW)), axis=0)
        return 1 - missed_W

    def value(self, gate_HW: Floats) -> float:
        """J: mean accuracy over slots."""
        return float(self.accuracy_W(gate_HW).mean())

    def gradient_HW(self, logit_HW: Floats) -> Floats:
        """∇J with respect to gate logits, exact but for f′."""
        gate_HW = softmax(logit_HW)
        u_HW = cosine(gate_HW)
        missed_HW = 1 - self.found(u_HW)
        others_HW = np.array(
            [np.prod(np.delete(missed_HW, h, axis=0), axis=0) for h in range(len(missed_HW))]
        )
        by_u_HW = others_HW * self.slope(u_HW) / self.width
        length_H1 = np.sqrt((gate_HW**2).sum(axis=1, keepdims=True))
        by_a_HW = (by_u_HW - u_HW * (by_u_HW * u_HW).sum(axis=1, keepdims=True)) / length_H1
        by_b_HW: Floats = gate_HW * (by_a_HW - (by_a_HW * gate_HW).sum(axis=1, keepdims=True))
        return by_b_HW

    def growth(self) -> dict[str, float]:
        """Rates at which small preferences grow from the uniform gate: heads `alike`, and `apart` for several."""
        u, heads = self.even, self.heads
        f, first, second = float(self.found(u)), float(self.slope(u)), self.bend(u)
        rest = (1 - f) ** (heads - 1) / self.width**2
        share = first**2 / max(1 - f, 1e-300)
        rates = {"alike": rest * (second - first / u - (heads - 1) * share)}
        if heads > 1:
            rates["apart"] = rest * (second - first / u + share)
        return rates

    @property
    def stable(self) -> bool:
        """Whether every small preference dies out from the uniform gate."""
        return max(self.growth().values()) <= 0


def softmax(logit_HW: Floats) -> Floats:
    """Gate weights from logits, along the last axis."""
    shifted = np.exp(logit_HW - logit_HW.max(axis=-1, keepdims=True))
    weights: Floats = shifted / shifted.sum(axis=-1, keepdims=True)
    return weights


def cosine(gate_HW: Floats) -> Floats:
    """U = a / √(Σ a²) along the last axis."""
    ratio: Floats = gate_HW / np.sqrt((gate_HW**2).sum(axis=-1, keepdims=True))
    return ratio


def two_entries(task: Task, u: Floats | float) -> Floats:
    """f(u) for N = 2 in closed form: Φ( u r / √(2 − u²/(1+σ²)) ), the difference of two normal scores."""
    at = np.asarray(u, dtype=np.float64)
    chance: Floats = ndtr(at * task.signal / np.sqrt(2 - at**2 / (1 + task.noise**2)))
    return chance


def keeping(width: int, kept: int) -> Floats:
    """The gate that spreads its weight evenly over the first `kept` slots."""
    gate_W = np.zeros(width)
    gate_W[:kept] = 1 / kept
    return gate_W


def best_even(task: Task) -> tuple[int, Floats]:
    """How many slots one head should keep evenly, and J for each number from 1 to W.

    J(m) = (m/W) f(1/√m) + (1 − m/W) f(0)          f(0) = 1/N, chance
    """
    count_W = np.arange(1, task.width + 1)
    share_W = count_W / task.width
    value_W = share_W * task.found(1 / np.sqrt(count_W)) + (1 - share_W) * task.found(0.0)
    return int(count_W[value_W.argmax()]), value_W


@dataclass(frozen=True, slots=True)
class Flow:
    """A gradient flow of gates.

    Attributes:
        time_T: times at which gates were noted.
        gate_THW: the gates.
        value_T: J at these times.
    """

    time_T: Floats
    gate_THW: Floats
    value_T: Floats


def flow(
    task: Task, *, rng: np.random.Generator, start: float = 0.05, end: float = 2000.0, steps: int = 800
) -> Flow:
    """Gradient flow ḃ = ∇J of the gates' logits from a nearly uniform start.

    Time steps grow geometrically and are held so short that no logit moves by more than 0.05 in one of them, so that
    Euler's rule is enough.

    Args:
        task: the task, with its number of heads.
        rng: of the start.
        start: SD of the logits at time 0.
        end: time at which it stops.
        steps: notes taken, spread geometrically in time.
    """
    logit_HW = start * rng.standard_normal((task.heads, task.width))
    logit_HW -= logit_HW.mean(axis=1, keepdims=True)
    time_T = np.concatenate([[0.0], np.geomspace(end / 1e4, end, steps - 1)])
    gates, now = [softmax(logit_HW)], 0.0
    for until in time_T[1:]:
        while now < until - 1e-12:
            slope_HW = task.gradient_HW(logit_HW)
            step = min(until - now, 0.05 / max(float(np.abs(slope_HW).max()), 1e-12))
            logit_HW = logit_HW + step * slope_HW
            now += step
        gates.append(softmax(logit_HW))
    gate_THW = np.array(gates)
    return Flow(time_T, gate_THW, np.array([task.value(gate_HW) for gate_HW in gate_THW]))


def best_gate(
    task: Task, *, rng: np.random.Generator, starts: int = 6, end: float = 3e4
) -> tuple[Floats, float]:
    """The best gates that gradient flow finds from several starts, the even gate among them.

    Returns:
        gates [H, W] and their J.
    """
    found = [np.full((task.heads, task.width), 1 / task.width)]
    for start in (0.05, 1.0, 3.0):
        found += [
            flow(task, rng=rng, start=start, end=end, steps=20).gate_THW[-1]
            for _ in range(max(1, starts // 3))
        ]
    best = max(found, key=task.value)
    return best, task.value(best)


def simulate(task: Task, gate_HW: Floats, *, rng: np.random.Generator, trials: int = 2000) -> Floats:
    """The task itself, drawn: share of keys that any head finds, slot by slot.

    Args:
        task: its channels are rounded to a whole number.
        gate_HW: one gate per head.
        rng: of keys and noise.
        trials: queries per slot.
    """
    channels, width = round(task.channels), task.width
    right_W = np.zeros(width)
    for slot in range(width):
        for _ in range(trials):
            hit = False
            for gate_W in gate_HW:
                key_NWD = rng.standard_normal((task.entries, width, channels))
                entry_ND = np.einsum("w,nwd->nd", gate_W, key_NWD)
                query_D = key_NWD[0, slot] + task.noise * rng.standard_normal(channels)
                hit = hit or int((entry_ND @ query_D).argmax()) == 0
            right_W[slot] += hit
    return right_W / trials


def grows_at(task: Task, *, size: float = 1e-3, alike: bool = True) -> float:
    """The rate at which a small preference grows from the uniform gate, measured on the flow's own gradient.

    Args:
        task: the task.
        size: of the preference, in logits.
        alike: all heads prefer the same slots; else the first two prefer opposite ones.
    """
    shape_W = np.cos(2 * np.pi * np.arange(task.width) / task.width)
    shape_HW = np.tile(shape_W, (task.heads, 1))
    if not alike:
        shape_HW[1] *= -1
        shape_HW[2:] = 0
    slope_HW = task.gradient_HW(size * shape_HW)
    return float((slope_HW * shape_HW).sum() / (size * (shape_HW**2).sum()))


def curve_of(task: Task, gates: Sequence[Floats]) -> Floats:
    """Accuracy per slot of gates that are given head by head."""
    return task.accuracy_W(np.stack(list(gates)))
