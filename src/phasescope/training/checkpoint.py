"""Training state on disk as safetensors and JSON: no pickle, whole or not at all, from any number of processes."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim import Optimizer

from ..errors import BrokenRecordError, UsageError
from ..files import dump_json, read_record
from .parallel import Processes, give, whole
from .settings import Progress, State

TENSORS, FACTS = "state.safetensors", "state.json"


def save_state(
    folder: Path,
    model: torch.nn.Module,
    optimizers: Sequence[Optimizer],
    progress: Progress,
    processes: Processes,
) -> None:
    """Write weights, optimizer states and progress beside the old state, then exchange the two.

    Every process must call; the main one gathers what others hold in shards, and writes `model.NAME` for each
    parameter and `optimizer.NAME.KEY` for what its optimizer remembers of it.
    """
    tensors = {}
    for name, tensor in _held(model, optimizers):
        found = whole(tensor.detach())
        if processes.main:
            tensors[name] = found.cpu().contiguous()
    if processes.main:
        _write(folder, tensors, progress)
    processes.wait()


def load_state(
    folder: Path,
    model: torch.nn.Module,
    optimizers: Sequence[Optimizer],
    processes: Processes,
) -> Progress | None:
    """Restore what `save_state` wrote and return the progress, or None where there is no state.

    Every process must call; the main one reads, so that the others need not see the folder.

    Raises:
        UsageError: if the state belongs to another model or another optimizer.
        BrokenRecordError: if a file of it is missing or damaged.
    """
    tensors: dict[str, Tensor] = {}

    def read() -> tuple[Progress, dict[str, float | None]] | None:
        _recover(folder)
        if not folder.exists():
            return None
        state = read_record(folder / FACTS, State)
        progress = Progress(**state.model_dump(exclude={"digest"}))
        tensors.update(_tensors(folder, progress, state.digest))
        _check(folder, model, tensors)
        scalars = {name: value.item() if value.ndim == 0 else None for name, value in tensors.items()}
        return progress, scalars

    found = processes.from_main(read)
    if found is None:
        return None
    progress, names = found
    for name, param in model.named_parameters():
        give(tensors.get(f"model.{name}"), param, processes)
    for name, optimizer, moved in _moved(model, optimizers):
        begin = f"optimizer.{name}."
        keys = {key.removeprefix(begin): value for key, value in names.items() if key.startswith(begin)}
        for key, value in keys.items():
            if value is not None:
                optimizer.state[moved][key] = torch.tensor(value)
                continue
            optimizer.state[moved][key] = torch.zeros_like(moved)
            give(tensors.get(begin + key), optimizer.state[moved][key], processes)
    return progress


def _tensors(folder: Path, progress: Progress, digest: str) -> dict[str, Tensor]:
    path, fix = folder / TENSORS, f"restore it, or remove {folder} to begin the run anew"
    try:
        if _digest(path, progress) != digest:
            raise BrokenRecordError(f"{path} and {FACTS} beside it were not written together; {fix}")
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise BrokenRecordError(f"{path} cannot be read ({error}); {fix}") from None


def _digest(path: Path, progress: Progress) -> str:
    """SHA-256 of both; a byte that has turned on the disk would go on into every later weight."""
    digest = hashlib.sha256(dump_json(progress.model_dump()).encode())
    with path.open("rb") as file:
        hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def _moved(
    model: torch.nn.Module, optimizers: Sequence[Optimizer]
) -> Iterator[tuple[str, Optimizer, Tensor]]:
    """Parameters by name, in the model's order, each with its optimizer."""
    owner: dict[Tensor, Optimizer] = {
        param: opt for opt in optimizers for group in opt.param_groups for param in group["params"]
    }
    for name, param in model.named_parameters():
        yield name, owner[param], param


def _held(model: torch.nn.Module, optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """Everything that a state keeps, by name."""
    for name, param in model.named_parameters():
        yield f"model.{name}", param
    for name, optimizer, moved in _moved(model, optimizers):
        for key, value in optimizer.state.get(moved, {}).items():
            yield f"optimizer.{name}.{key}", value


def _write(folder: Path, tensors: dict[str, Tensor], progress: Progress) -> None:
    part, old = folder.with_name(f".{folder.name}.part"), folder.with_name(f".{folder.name}.old")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_file(tensors, part / TENSORS)
    except SafetensorError as error:  # a full disk, too, is told so
        raise UsageError(
            f"{part / TENSORS} cannot be written ({error}); make room and give the same command again"
        ) from None
    state = State(**progress.model_dump(), digest=_digest(part / TENSORS, progress))
    (part / FACTS).write_text(dump_json(state.model_dump()))
    shutil.copymode(part / FACTS, part / TENSORS)  # safetensors lets nobody else read
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _recover(folder: Path) -> None:
    """Undo the first of two renames where a kill came between them."""
    old = folder.with_name(f".{folder.name}.old")
    if not folder.exists() and old.exists():
        old.rename(folder)


def _check(folder: Path, model: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """The state must hold this model's parameters, and what is remembered of them and of no others."""
    params = {f"model.{name}": param.shape for name, param in model.named_parameters()}
    weights = {name: value.shape for name, value in tensors.items() if name.startswith("model.")}
    states = [name.removeprefix("optimizer.").rpartition(".")[0] for name in tensors if name not in weights]
    if weights != params or not {f"model.{name}" for name in states} <= params.keys():
        raise UsageError(
            f"the checkpoint in {folder} belongs to another model or an older version; use another --out folder"
        )
