"""Small random models, ours and foreign, and trials for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from phasescope import Trial
from phasescope.protocols import InSequencePadding
from phasescope.text.synthetic import RetrievalVocabulary

VOCABULARY = RetrievalVocabulary.contiguous(16, 24, 24)
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.5,  # far from uniform answers, so that a wrong edit shows
}


def ours(heads: int = 2, **compression: Any) -> Any:
    """One of our models with random weights and random slot biases."""
    import torch

    from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM

    torch.manual_seed(0)
    plan = {"compressor": "scalar_gate", "width": 8, "stride": 4, **compression}
    config = CompressedQwen3Config(
        **SHAPE, num_hidden_layers=2, num_key_value_heads=heads, intermediate_size=64, compression=plan
    )
    model = CompressedQwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("slot_bias", "position_bias", "sinks")):
                parameter.normal_()
    return model


def qwen3() -> Any:
    """A plain Qwen3 with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(**SHAPE, num_hidden_layers=3, num_key_value_heads=2, intermediate_size=64)
    return Qwen3ForCausalLM(config).eval()


def llama() -> Any:
    """A plain Llama with random weights, in which three query heads share a KV head."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {**SHAPE, "num_attention_heads": 6, "hidden_size": 48, "head_dim": 8}
    config = LlamaConfig(**shape, num_hidden_layers=2, num_key_value_heads=2, intermediate_size=64)
    return LlamaForCausalLM(config).eval()


def deepseek_v4() -> Any:
    """All three attention kinds of DeepSeek-V4."""
    import torch

    from tests.builders import tiny_models

    torch.manual_seed(0)
    return tiny_models.deepseek_v4().eval()


MODELS: dict[str, Any] = {
    "two heads": ours,
    "bound, with a sink": lambda: ours(heads=1, binding=True, sink=True, rotary=0.5, tail=2),
    "one grid a head": lambda: ours(width=8, stride=8, shift=((0, 4), (2, 6))),
    "qwen3": qwen3,
    "llama": llama,
    "deepseek_v4": deepseek_v4,
}


@pytest.fixture
def trials() -> list[Trial]:
    """One context's questions in four layouts."""
    return draw()


def draw(seed: int = 1, contexts: int = 1) -> list[Trial]:
    """Questions of some contexts of nine records in four layouts, three asked of each."""
    protocol = InSequencePadding(pairs=9, contexts=contexts, residues=4, questions=3)
    return [trial for batch in protocol.batches(VOCABULARY, np.random.default_rng(seed)) for trial in batch]
