"""Training state on disk as safetensors and JSON: no pickle, whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.optim import Optimizer

from ..errors import UsageError
from ..records import dump_json, read_json


def save_state(
    folder: Path, model: torch.nn.Module, optimizers: Sequence[Optimizer], facts: dict[str, Any]
) -> None:
    """Write weights, optimizer state and facts beside the old state, then exchange the two."""
    part, old = folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.old")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tensors = {f"model.{name}": param.detach().contiguous() for name, param in model.named_parameters()}
    for number, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{index}.{name}": value for name, value in state.items()}
    save_file(tensors, part / "state.safetensors")
    (part / "state.json").write_text(dump_json(facts))
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load_state(
    folder: Path, model: torch.nn.Module, optimizers: Sequence[Optimizer]
) -> dict[str, Any] | None:
    """Restore what `save_state` wrote and return its facts, or None where there is no state.

    Raises:
        UsageError: if the state belongs to another model.
    """
    old = folder.with_name(f".{folder.name}.old")
    if not folder.exists() and old.exists():  # killed between the two renames
        old.rename(folder)
    if not folder.exists():
        return None
    tensors = load_file(folder / "state.safetensors")
    params = dict(model.named_parameters())
    shapes = {
        name.removeprefix("model."): value.shape
        for name, value in tensors.items()
        if name.startswith("model.")
    }
    if shapes != {name: param.shape for name, param in params.items()}:
        raise UsageError(f"the checkpoint in {folder} belongs to another model; use another --out folder")
    with torch.no_grad():
        for name, param in params.items():
            param.copy_(tensors[f"model.{name}"])
    for number, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith(f"optimizer.{number}."):
                _, _, index, key = name.split(".", 3)
                state.setdefault(int(index), {})[key] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    facts: dict[str, Any] = read_json(folder / "state.json")
    return facts
