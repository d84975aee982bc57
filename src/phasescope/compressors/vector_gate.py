"""Vector gate: one learned weight per token, KV head and channel."""

from .base import AbstractWindowPool


class VectorGate(AbstractWindowPool):
    """One softmax weight per token and channel; key and value of a channel share it.

    Source: arXiv 2609.36322, the ablation with a gate per channel.
    Differs: key and value channel d share the weight d, so that one gate serves the joint payload.
    """

    @staticmethod
    def gate_channels(head_dim: int) -> int:
        """One weight per token, head and channel."""
        return head_dim
