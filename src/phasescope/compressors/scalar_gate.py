"""Scalar gate: one learned weight per token and KV head."""

from .base import AbstractWindowPool


class ScalarGate(AbstractWindowPool):
    """One softmax weight per token and KV head, shared by all channels of the entry.

    Source: arXiv 2609.36322, the reference gate.
    Differs: see `AbstractWindowPool`.
    """

    @staticmethod
    def gate_channels(head_dim: int) -> int:
        """One weight per token and head."""
        return 1
