"""Qwen3 for causal language modelling with a compressed KV cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Cache,
    GenerationConfig,
    Qwen3ForCausalLM,
    initialization,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..errors import UsageError
from .attention import CompressedAttention
from .cache import EntryCache, entry_layer
from .config import CompressedQwen3Config


class CompressedQwen3ForCausalLM(Qwen3ForCausalLM):
    """`transformers`' Qwen3 with its attention layers exchanged, and nothing else changed.

    With `config.compression` unset it is plain Qwen3, the full-attention baseline. Loads and saves like
    any checkpoint, through `AutoModelForCausalLM` once this module is imported.
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

    def initialize_weights(self) -> None:
        """Qwen3's, and our own: a plain checkpoint lacks it, and memory would be left as it was found."""
        for module in self.modules():
            initial = getattr(module, "initial", None)
            if initial is not None and not getattr(module, "_is_hf_initialized", False):
                for name, value in initial().items():
                    initialization.copy_(getattr(module, name), value)  # leaves alone what has been loaded
        super().initialize_weights()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Qwen3's forward. Left pads are left out: each row is read as it would be alone.

        Raises:
            UsageError: if an attention mask hides a token behind a real one, or the positions skip one.
        """
        if self.config.compression is not None:
            cache = kwargs.pop("past_key_values", None) or cache  # the older name of the same
            seen = 0 if cache is None else cache.get_seq_length()
            given = inputs_embeds if input_ids is None else input_ids
            if given is not None and not given.shape[0] * given.shape[1]:
                raise UsageError(f"there are no tokens to read: the input has the shape {list(given.shape)}")
            rows, end = (0, 0) if given is None else (given.shape[0], seen + given.shape[1])
            kwargs["pads"] = pads = left_pads(attention_mask, rows, end)
            if position_ids is not None:
                _check_positions(position_ids, seen, pads, rows, end)
            # A mask that comes as a mapping is passed on as it is: Qwen3 would build one of T × T.
            attention_mask = {"full_attention": None}  # type: ignore[assignment]
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            cache=cache,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )

    def _prepare_cache_for_generation(  # type: ignore[override]  # typed by a protocol that Qwen3 is not
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """`generate` begins with our own cache, so that assisted decoding finds one that it can crop."""
        given = model_kwargs.get("cache")
        super_: Any = super()
        super_._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if self.config.compression is None or model_kwargs.get("cache") is None:
            return
        if given is not None:
            if not given.get_seq_length():
                for index in range(self.config.num_hidden_layers):
                    entry_layer(given, index)  # so that it can be told to record
            return
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise UsageError(
                f"cache_implementation {generation_config.cache_implementation!r} does not apply to a compressed "
                "KV cache; leave it out"
            )
        model_kwargs["cache"] = EntryCache(self.config)
        if generation_config.is_assistant:
            model_kwargs["cache"].activate_past_recording()


def left_pads(attention_mask: Tensor | None, rows: int, end: int) -> tuple[int, ...]:
    """How many tokens at the start of each row are padding; empty where none is.

    Raises:
        UsageError: if the mask is not of [rows, end], hides a token behind a real one, or a row has no real
            token yet.
    """
    if attention_mask is None:
        return ()
    if attention_mask.shape != (rows, end):
        raise UsageError(
            f"the attention mask has the shape {list(attention_mask.shape)}; give [{rows}, {end}], all tokens read "
            "so far included"
        )
    if bool(attention_mask.bool().all()):
        return ()
    real_BT = attention_mask.bool()
    pads_B = real_BT.int().argmax(dim=1)
    if not bool(real_BT.any(1).all()):
        raise UsageError(
            "a row has no real token yet; let the first part be longer than the longest left padding"
        )
    if not bool((real_BT.sum(1) == real_BT.shape[1] - pads_B).all()):
        raise UsageError(
            "a compressed KV cache takes an attention mask [batch, tokens] whose hidden tokens all come first; "
            "pad on the left"
        )
    return tuple(pads_B.tolist())


def _check_positions(position_ids: Tensor, seen: int, pads: tuple[int, ...], rows: int, end: int) -> None:
    """Positions must count on from the tokens read so far, with or without the left pads."""
    if position_ids.ndim != 2 or position_ids.shape[1] != end - seen or len(position_ids) not in (1, rows):
        raise UsageError(
            f"position_ids have the shape {list(position_ids.shape)}; give [{rows}, {end - seen}]"
        )
    slot_T = torch.arange(position_ids.shape[-1], device=position_ids.device) + seen
    pad_B1 = torch.tensor(pads or (0,), device=position_ids.device)[:, None]
    real_BT = slot_T >= pad_B1
    given_BT = position_ids.expand(max(len(position_ids), len(pad_B1)), -1)
    for expected_BT in (slot_T - pad_B1, slot_T.expand(len(pad_B1), -1)):
        if bool(((given_BT == expected_BT) | ~real_BT).all()):
            return
    raise UsageError(f"position_ids must count on from the {seen} tokens read so far")


AutoConfig.register(CompressedQwen3Config.model_type, CompressedQwen3Config, exist_ok=True)
AutoModelForCausalLM.register(CompressedQwen3Config, CompressedQwen3ForCausalLM, exist_ok=True)
