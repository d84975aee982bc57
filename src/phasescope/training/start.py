"""Starting from a plain Qwen3 checkpoint: its attention gets a compressor, every other weight is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from ..checkpoints.config import load_config
from ..errors import UsageError
from ..models import CompressedQwen3ForCausalLM
from .settings import Start, Training

PLAIN = ("qwen3", "phasescope_qwen3")
UNUSED = ("_name_or_path", "architectures", "compression", "dtype", "model_type", "torch_dtype", "use_cache")
NEW = (".compressor.", ".sinks")


def read_start(folder: Path) -> Start:
    """What there is to start from, without loading it.

    Raises:
        UsageError: if the folder holds no plain Qwen3 checkpoint in safetensors.
    """
    config = load_config(folder, weights=True)
    kind = config.get("model_type")
    if kind not in PLAIN:
        raise UsageError(f"{folder} holds a model of type {kind!r}; give a plain Qwen3 checkpoint (qwen3)")
    if config.get("compression") is not None:
        raise UsageError(f"{folder} has a compressor already; give a plain Qwen3 checkpoint")
    if config.get("quantization_config") is not None:
        raise UsageError(f"{folder} is quantised, and such weights cannot be trained; give the original")
    kept = {key: value for key, value in config.items() if key not in (*UNUSED, "transformers_version")}
    return Start(weights=_digest(folder), config=kept)


def start_model(settings: Training, folder: Path | None) -> CompressedQwen3ForCausalLM:
    """The checkpoint's model with a compressor, in float32; only what is new is drawn, from the seed.

    Raises:
        UsageError: if the folder holds other weights than the settings name, or they don't fit the model.
    """
    assert settings.start is not None  # the caller has looked
    if folder is None or _digest(folder) != settings.start.weights:
        raise UsageError(
            f"the settings start from the weights {settings.start.weights[:12]}…, and {folder or 'none'} was given"
        )
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it would warn of the compressor's weights, which are missing for a reason
    try:
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            loaded: Any = CompressedQwen3ForCausalLM.from_pretrained(
                folder,
                config=settings.architecture(),
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
    except Exception as error:  # a broken folder fails in whatever way the libraries meet first
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"cannot load {folder}: {problem}") from error
    finally:
        logging.set_verbosity(verbosity)
    model, info = loaded
    missing = [name for name in info["missing_keys"] if not any(part in name for part in NEW)]
    if lost := sorted([*missing, *info["unexpected_keys"]]):
        raise UsageError(f"the weights in {folder} are not those of its config.json: {', '.join(lost[:3])}")
    return model


def _digest(folder: Path) -> str:
    """SHA-256 of the files that hold the weights."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UsageError(f"{folder} holds no *.safetensors; give a folder that save_pretrained wrote")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            hashlib.file_digest(opened, lambda: digest)
    return digest.hexdigest()
