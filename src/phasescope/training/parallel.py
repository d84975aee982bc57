"""How the processes of one run share a step: sums over all of them, and a model that is whole in each or in shards."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any, Literal, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils import get_total_norm

from ..errors import PhasescopeError, UsageError

Parallel = Literal["ddp", "fsdp"]
T = TypeVar("T")
PATIENCE = timedelta(days=7)
"""How long the others wait for what the main process does alone; if it dies, its closed connection ends the wait."""
AT_ONCE = 2**26  # numbers that are averaged in one message


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that train one model.

    Attributes:
        index: of this one, from 0, over all nodes.
        count: how many there are.
        patient: the group in which the others wait for the main process; collectives give up after minutes.
    """

    index: int = 0
    count: int = 1
    patient: Any = None

    @classmethod
    def here(cls) -> Self:
        """Those that `torchrun` or `accelerate launch` started; one without them. All must ask at the same time."""
        if not dist.is_initialized():
            return cls()
        atexit.unregister(_leave)
        atexit.register(_leave)
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        return cls(dist.get_rank(), dist.get_world_size(), patient)

    @property
    def main(self) -> bool:
        """Whether this is the one that writes files."""
        return self.index == 0

    def wait(self) -> None:
        """Go on when all have come this far, however long that takes."""
        if self.count > 1:
            dist.barrier(group=self.patient)

    def from_main(self, find: Callable[[], T]) -> T:
        """What a function returns in the main process; the error that it raises there, all raise."""
        found: list[Any] = [None, None]
        if self.main:
            try:
                found[0] = find()
            except PhasescopeError as error:
                if self.count == 1:
                    raise
                found[1] = error
        if self.count > 1:
            dist.broadcast_object_list(found, group=self.patient)
        if found[1] is not None:
            raise found[1]
        value: T = found[0]
        return value

    def mean(self, x: Tensor) -> Tensor:
        """The mean over processes of a plain tensor, without gradient."""
        if self.count == 1:
            return x.detach()
        total = x.detach().clone()
        dist.all_reduce(total)
        return total / self.count


def _leave() -> None:
    """End the groups while the interpreter stands; gloo's threads can crash a process that exits with them."""
    if dist.is_initialized():
        dist.destroy_process_group()


def same(model: nn.Module, processes: Processes) -> None:
    """Give all processes the weights of the main one."""
    if processes.count > 1:
        for param in model.parameters():
            dist.broadcast(param.data, 0)


def shard(model: Any, *, bf16: bool) -> None:
    """Split embeddings and matrices over all processes, layer by layer (FSDP2).

    A layer's matrices are gathered for its forward and its backward pass only; gradients and optimizer states stay
    split. Norms, slot biases and sinks are small and stay whole. With `bf16` the layers' matrices are gathered in
    bfloat16, which autocast would turn them into anyway, and gradients are summed in float32: the numbers are those
    of a whole model.

    Args:
        model: the causal language model, with all its weights, equal in all processes.
        bf16: whether its layers compute in bfloat16.

    Raises:
        UsageError: if there is one process and nothing to split over.
    """
    if not dist.is_initialized():
        raise UsageError(
            "fsdp splits a model over processes, and there is one: start with torchrun, or use ddp"
        )
    matrices = {m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Embedding)}
    small = {param for param in model.parameters() if param not in matrices}
    exact = MixedPrecisionPolicy(cast_forward_inputs=False)
    layers = exact
    if bf16:
        layers = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=layers, ignored_params=small)
    fully_shard(model, mp_policy=exact, ignored_params=small)


def average_gradients(params: Iterable[Tensor], processes: Processes) -> None:
    """Replace the gradients of whole parameters by their means over processes; those of shards are means already.

    Once a step, after the last backward pass. A parameter without gradient in some processes counts as 0 there;
    without one anywhere it keeps none, so that no optimizer moves it.

    Differs: `DistributedDataParallel` averages during the backward pass, and hides part of the time. It leaves
        parameters out that the pass it listens to doesn't use, though an earlier part of the same step did, and
        processes drift apart: a short context without a complete window doesn't use a gate.
    """
    if processes.count == 1:
        return
    whole = [param for param in params if not isinstance(param, DTensor)]
    if not whole:
        return
    used = torch.tensor([float(param.grad is not None) for param in whole], device=whole[0].device)
    dist.all_reduce(used)
    moved = [param for param, count in zip(whole, used.tolist(), strict=True) if count]
    for bucket in _buckets(moved):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        dist.all_reduce(flat)
        flat /= processes.count
        for param, mean in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            param.grad = mean.view_as(param)


def _buckets(params: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Parameters of one type, in order, about `AT_ONCE` numbers at a time."""
    bucket: list[Tensor] = []
    for param in params:
        if bucket and (param.dtype != bucket[0].dtype or sum(p.numel() for p in bucket) >= AT_ONCE):
            yield bucket
            bucket = []
        bucket.append(param)
    if bucket:
        yield bucket


@torch.no_grad()
def clip(params: Iterable[Tensor], most: float) -> None:
    """Scale all gradients together so that their norm is at most this."""
    moved = [param for param in params if param.grad is not None]
    kept = [param.grad for param in moved if param.grad is not None and not isinstance(param.grad, DTensor)]
    split = [local(param.grad) for param in moved if isinstance(param.grad, DTensor)]
    norm = get_total_norm(kept)
    if split:
        square = get_total_norm(split).square()
        dist.all_reduce(square)
        norm = (norm.to(square) ** 2 + square).sqrt()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for gradient in (*kept, *split):
        gradient.mul_(factor)


def whole(x: Tensor) -> Tensor:
    """A tensor with all its shards; every process must ask for it at the same time."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def local(x: Tensor) -> Tensor:
    """This process's shard, in the same memory; a plain tensor is its own."""
    return x.to_local() if isinstance(x, DTensor) else x


@torch.no_grad()
def give(source: Tensor | None, target: Tensor, processes: Processes) -> None:
    """Copy the main process's whole tensor into this one, or into its shards, in every process."""
    if processes.count == 1:
        assert source is not None
        local(target).copy_(source)
        return
    full = torch.empty(target.shape, dtype=target.dtype, device=local(target).device)
    if source is not None:
        full.copy_(source)
    if isinstance(target, DTensor):
        target.copy_(distribute_tensor(full, target.device_mesh, target.placements))
    else:
        dist.broadcast(full, 0)
        target.copy_(full)


def by_owners(shards: Sequence[Tensor], like: DTensor, change: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Change whole matrices that are held in shards of rows: each goes to one process, and comes back in shards.

    Of n matrices, process r changes r, r + count, r + 2·count, …: the work is shared, and a process sends and receives
    each way as many numbers as its shards hold.

    Args:
        shards: this process's rows of n matrices of one shape.
        like: one of the parameters.
        change: from matrices [n, rows, columns] to as many of the same shape.
    """
    group = like.device_mesh.get_group()
    index, count = dist.get_rank(group), dist.get_world_size(group)
    rows, columns = like.shape
    ends = list(accumulate(len(part) for part in torch.arange(rows).chunk(count)))
    heights = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    heights += [0] * (count - len(heights))
    owned = [len(range(owner, len(shards), count)) for owner in range(count)]
    mine = [owned[owner] * heights[index] * columns for owner in range(count)]
    theirs = [owned[index] * height * columns for height in heights]
    order = [i for owner in range(count) for i in range(owner, len(shards), count)]
    sent = torch.cat([shards[i].flatten() for i in order])
    received = sent.new_empty(sum(theirs))
    dist.all_to_all_single(received, sent, theirs, mine, group=group)
    parts = [
        part.view(owned[index], height, columns)
        for part, height in zip(received.split(theirs), heights, strict=True)
    ]
    changed = torch.cat(parts, dim=1)
    if owned[index]:
        changed = change(changed)
    back = torch.cat([part.flatten() for part in changed.split(heights, dim=1)])
    dist.all_to_all_single(sent, back, mine, theirs, group=group)
    found = dict(zip(order, sent.view(len(shards), heights[index], columns), strict=True))
    return [found[i] for i in range(len(shards))]
