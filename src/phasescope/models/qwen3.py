"""Qwen3 for causal language modelling with a compressed KV cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, Qwen3ForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..errors import UsageError
from .attention import CompressedAttention
from .config import CompressedQwen3Config


class CompressedQwen3ForCausalLM(Qwen3ForCausalLM):
    """`transformers`' Qwen3 with its attention layers exchanged, and nothing else changed.

    With `config.compression` unset it is plain Qwen3, the full-attention baseline. Loads and saves like
    any checkpoint, through `AutoModelForCausalLM` once `phasescope.models` is imported.
    """

    config: CompressedQwen3Config
    config_class = CompressedQwen3Config
    _can_compile_fullgraph = False

    def __init__(self, config: CompressedQwen3Config) -> None:
        super().__init__(config)
        if config.plan is not None:
            for index, layer in enumerate(self.model.layers):
                layer.self_attn = CompressedAttention(config, index)
            self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Qwen3's forward; padded batches are refused, because a pad token would be folded into entries.

        Raises:
            UsageError: if an attention mask hides a token or the positions skip one.
        """
        if self.config.compression is not None:
            if attention_mask is not None and not bool(torch.as_tensor(attention_mask).bool().all()):
                raise UsageError(
                    "padded batches are not supported with a compressed KV cache: pads would be folded into "
                    "entries; use prompts of equal length"
                )
            seen = 0 if cache is None else cache.get_seq_length()
            if position_ids is not None:
                expected = torch.arange(position_ids.shape[-1], device=position_ids.device) + seen
                if not bool((position_ids == expected).all()):
                    raise UsageError(f"position_ids must count on from the {seen} tokens read so far")
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )
