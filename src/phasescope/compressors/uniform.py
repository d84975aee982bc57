"""Uniform gate: every token of a window weighs the same."""

from .base import AbstractWindowPool


class Uniform(AbstractWindowPool):
    """The plain mean of a window: each of its tokens has weight 1/W.

    Source: arXiv 2609.36322, the ablation without a learned gate.
    Differs: a first window that begins before token 0 divides by its number of real tokens.
    """

    @staticmethod
    def gate_channels(head_dim: int) -> int:
        """No gate."""
        return 0
