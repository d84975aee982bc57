"""Checkpoints from a folder of this machine: where they are put, in which precision, with which attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

import phasescope.models.qwen3  # noqa: F401  # registers our classes with the auto classes

from ...checkpoints.card import read_card
from ...checkpoints.config import load_config
from ...errors import MissingExtraError, UsageError, first_line, is_failure
from ...text.synthetic import RetrievalVocabulary
from ...text.tokens import Tokenizer

DTYPES = ("auto", "bfloat16", "float16", "float32", "float64")
ATTENTIONS = ("eager", "flash_attention_2", "flash_attention_3", "flex_attention", "sdpa")
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")


def prepare(threads: int) -> None:
    """Have torch use so many threads in this process, and `transformers` draw no progress bars beside ours."""
    torch.set_num_threads(threads)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers is typed in part


def load_model(
    folder: Path,
    *,
    device: str = "cpu",
    dtype: str = "auto",
    device_map: str | None = None,
    attention: str | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Load a checkpoint folder: safetensors only, from this machine only, no code of its own.

    Args:
        folder: what `save_pretrained` wrote.
        device: where torch puts the model, unless there is a device map.
        dtype: one of `DTYPES`; `auto` keeps the checkpoint's own.
        device_map: one of `DEVICE_MAPS`: how accelerate spreads layers over this machine's GPUs.
        attention: one of `ATTENTIONS`; by default what the model's class prefers.
        trust_remote_code: run Python code that the folder brings along.

    Raises:
        UsageError: if the folder holds no checkpoint that can be loaded whole, as asked.
    """
    _check_names(
        dtype=(dtype, DTYPES), device_map=(device_map, DEVICE_MAPS), attention=(attention, ATTENTIONS)
    )
    _check_device(device)
    if not any(folder.glob("*.safetensors")):
        raise UsageError(f"{folder} holds no *.safetensors; give a folder that save_pretrained wrote")
    # What it claims is allocated, and what it names is read and run, before anybody looks at it.
    load_config(folder, weights=True, trusted=trust_remote_code)
    placed: Any = device_map if device_map is not None else None if device == "cpu" else {"": device}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            device_map=placed,
            attn_implementation=attention,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except ImportError as error:
        raise MissingExtraError(
            f"cannot load {folder} so: {first_line(error)} Install it, or choose another attention"
            if attention is not None
            else f"cannot load {folder}: {first_line(error)}"
        ) from error
    except BaseException as error:  # a broken folder fails in whatever way the libraries meet first
        if not is_failure(error):
            raise
        raise UsageError(f"cannot load {folder}: {first_line(error)}") from error
    model, info = loaded
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise UsageError(f"the weights in {folder} lack {missing}; save the whole model with save_pretrained")
    if any(parameter.is_meta for parameter in model.parameters()):
        raise UsageError(
            f"{folder} does not fit the memory of device map {device_map!r}; use a smaller dtype or more GPUs"
        )
    return model


def folder_vocabulary(folder: Path) -> RetrievalVocabulary:
    """The vocabulary that a checkpoint's card states, else one of common words from its tokenizer.json.

    Raises:
        UsageError: if the folder has neither, or the tokenizer has too few whole words.
    """
    card = read_card(folder)
    if card is not None and card.vocabulary is not None:
        return card.vocabulary
    if card is not None and card.text is None:
        raise UsageError(
            f"{folder}/card.json has no vocabulary of fillers, keys and values; copy the card again"
        )
    if not (folder / "tokenizer.json").exists():
        raise UsageError(
            f"{folder} has neither card.json nor a tokenizer.json; pass a vocabulary or add its tokenizer"
        )
    return Tokenizer.load(folder).vocabulary()


def tokens_that_fit(model: Any) -> int:
    """How many tokens a raw KV cache of 1 GiB holds, at most 65,536: beyond that a forward gets no faster.

    A model without attention (Mamba) keeps no token; there the scan of one layer, whose plain implementation holds
    some three float32 states per token, is to fit 1 GiB.
    """
    config = model.config.get_text_config()

    def size(name: str, default: int) -> int:
        try:
            value = getattr(config, name, None)  # some configs have a list, one number per layer
        except RuntimeError:  # Gemma 4 and its kin: a value for each layer, and none for all
            each = config.per_layer_config
            value = max(getattr(each[layer], name) for layer in range(config.num_hidden_layers))
        return value if isinstance(value, int) and value > 0 else default

    layers, width, heads = (
        size("num_hidden_layers", 1),
        size("hidden_size", 1),
        size("num_attention_heads", 0),
    )
    if heads:
        channels = size("num_key_value_heads", heads) * size("head_dim", max(1, width // heads))
        token_bytes = 2 * layers * channels * model.dtype.itemsize
    else:
        token_bytes = 3 * 4 * size("intermediate_size", 2 * width) * size("state_size", 16)
    return int(min(2**16, max(1, 2**30 // token_bytes)))


def _check_names(**given: tuple[str | None, tuple[str, ...]]) -> None:
    for setting, (value, known) in given.items():
        if value is not None and value not in known:
            raise UsageError(f"unknown {setting} {value!r}; known: {', '.join(known)}")


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"cannot use device {device!r}: {first_line(error)}") from None
