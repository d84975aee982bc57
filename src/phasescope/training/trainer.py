"""The training loop: a curriculum over the number of records, on `accelerate`, resumable exactly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from accelerate import Accelerator, PartialState
from pydantic import Field, model_validator
from torch import Tensor

from ..errors import UsageError
from ..models import CompressedQwen3Config, CompressedQwen3ForCausalLM, Compression
from ..records import Record, dump_json, write_atomic
from .checkpoint import load_state, save_state
from .data import IGNORED, RetrievalTask
from .muon import Muon

SMOOTHING = 0.05  # weight of the newest step in the running loss and accuracy
SETTLE = 25  # steps after a change of difficulty before the next is considered


class Training(Record):
    """Everything that decides a training run; the same settings give the same weights on one machine.

    Attributes:
        compression: how the model folds its KV cache; None trains the full-attention baseline.
        task: the sequences.
        layers, width, heads, kv_heads, head_dim, feed_forward: shape of the Qwen3 model.
        steps: optimizer steps.
        rows: sequences per step, over all processes, while the contexts are short.
        queries: the most recalled values per step; where rows × pairs exceeds it there are fewer rows, so that
            long contexts cost no more than short ones.
        first_pairs, max_pairs: the curriculum starts at the first and doubles up to the last.
        promote: running loss, in nats, below which the number of pairs doubles.
        lr_matrices: Muon's step size, for the weight matrices of the layers.
        embedding_std: standard deviation of the token embeddings at the start.
        lr_gates: AdamW's step size for the compressors' gates and slot biases.
        lr_rest: AdamW's step size for all other parameters: embeddings, head and norms.
        warmup, decay: steps of linear warm-up, and the last fraction of steps, in which the step sizes fall
            linearly to zero.
        seed: seeds the weights and every batch.
    """

    compression: Compression | None = None
    task: RetrievalTask = RetrievalTask()
    layers: int = Field(default=2, ge=1)
    width: int = Field(default=64, ge=2)
    heads: int = Field(default=4, ge=1)
    kv_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=32, ge=2)
    feed_forward: int = Field(default=128, ge=1)
    steps: int = Field(default=4000, ge=1)
    rows: int = Field(default=48, ge=1)
    queries: int = Field(default=768, ge=1)
    first_pairs: int = Field(default=4, ge=1)
    max_pairs: int = Field(default=16, ge=1)
    promote: float = Field(default=2.0, gt=0)
    lr_matrices: float = Field(default=0.01, gt=0)
    lr_gates: float = Field(default=0.004, gt=0)
    lr_rest: float = Field(default=0.004, gt=0)
    embedding_std: float = Field(default=1.0, gt=0)
    warmup: int = Field(default=20, ge=0)
    decay: float = Field(default=0.2, ge=0, le=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _shape_fits(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; rotary embedding turns pairs of channels")
        return self

    def rows_at(self, pairs: int) -> int:
        """Sequences per step at a stage of the curriculum."""
        return max(1, min(self.rows, self.queries // pairs))

    def architecture(self) -> CompressedQwen3Config:
        """The configuration of the model that these settings train."""
        vocabulary = self.task.vocabulary
        return CompressedQwen3Config(
            vocab_size=max(*vocabulary.fillers, *vocabulary.keys, *vocabulary.values) + 1,
            hidden_size=self.width,
            intermediate_size=self.feed_forward,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            compression=None if self.compression is None else self.compression.model_dump(mode="json"),
        )


class Progress(Record):
    """Where a run stands; saved with every checkpoint."""

    step: int = 0
    pairs: int
    since: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float | None = None
    accuracy: float | None = None


def train(
    settings: Training,
    out: Path,
    *,
    every: int = 100,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Train, or go on training, and leave a checkpoint that `from_pretrained` loads.

    `out` receives `training.json` (the settings), `log.jsonl` (one line every `every` steps), `state/` (what
    resume needs) and at the end the model. Batches depend on seed and step alone, so that a run killed and
    started again with the same settings ends with the same weights, bit for bit, on one process on a CPU.
    Several processes (`torchrun`, `accelerate launch`) share the sequences of each step.

    Args:
        settings: what to train.
        out: folder of the run.
        every: steps between checkpoints.
        report: called after every step.

    Returns:
        the progress at the end; `loss` and `accuracy` are running means on fresh sequences.

    Raises:
        UsageError: if `out` holds a run of other settings, or the sequences of a step cannot be shared evenly.
    """
    # Without a GPU accelerate must be told so, or the processes of `torchrun` never find each other.
    accelerator = Accelerator(cpu=not torch.accelerator.is_available())
    _check_shares(settings, accelerator.num_processes)
    model = new_model(settings)  # first, so that settings that make no model leave no folder behind
    if accelerator.is_main_process:
        _claim(out, settings)
    optimizers = _optimizers(model, settings)
    facts = load_state(out / "state", model, optimizers)
    progress = (
        Progress(pairs=min(settings.first_pairs, settings.max_pairs)) if facts is None else Progress(**facts)
    )
    if accelerator.is_main_process:
        _cut_log(out / "log.jsonl", progress.step)
    wrapped, *prepared = accelerator.prepare(model, *optimizers)
    wrapped.train()
    while progress.step < settings.steps:
        progress = _step(settings, progress, wrapped, prepared, accelerator)
        report(progress)
        if accelerator.is_main_process and (progress.step % every == 0 or progress.step == settings.steps):
            save_state(out / "state", model, optimizers, progress.model_dump())
            _log(out / "log.jsonl", progress)
    if accelerator.is_main_process:
        model.save_pretrained(out)
    accelerator.wait_for_everyone()
    return progress


def new_model(settings: Training) -> CompressedQwen3ForCausalLM:
    """The model before its first step: its weights follow from the seed, and no other draw is disturbed."""
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        model = CompressedQwen3ForCausalLM(settings.architecture())
        # At Qwen3's 0.02 the first updates of the layers drown the token's identity in the residual stream.
        torch.nn.init.normal_(model.model.embed_tokens.weight, std=settings.embedding_std)
    return model


def is_main_process() -> bool:
    """Whether this is the one process that writes files; true without `torchrun`."""
    return bool(PartialState().is_main_process)


def _step(
    settings: Training, progress: Progress, model: Any, optimizers: list[Any], accelerator: Accelerator
) -> Progress:
    """One optimizer step, and the difficulty of the next."""
    started = time.perf_counter()
    rng = np.random.default_rng([settings.seed, progress.step])
    ids, labels = settings.task.batch(settings.rows_at(progress.pairs), progress.pairs, rng)
    mine = slice(accelerator.process_index, None, accelerator.num_processes)
    ids_BT, labels_BT = (torch.from_numpy(x[mine]).to(accelerator.device) for x in (ids, labels))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * _schedule(progress.step, settings)
    loss, hits = _loss(model, ids_BT, labels_BT)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    both = torch.stack([loss.detach(), hits])
    loss_now, accuracy_now = (
        accelerator.reduce(both, "mean") if accelerator.num_processes > 1 else both
    ).tolist()
    loss_mean, pairs = _smooth(progress.loss, loss_now), progress.pairs
    since = progress.since + 1
    if since >= SETTLE and loss_mean < settings.promote and pairs < settings.max_pairs:
        pairs, since = min(2 * pairs, settings.max_pairs), 0
    return Progress(
        step=progress.step + 1,
        pairs=pairs,
        since=since,
        tokens=progress.tokens + ids.size,
        seconds=progress.seconds + time.perf_counter() - started,
        loss=loss_mean,
        accuracy=_smooth(progress.accuracy, accuracy_now),
    )


def _loss(model: Any, ids_BT: Tensor, labels_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy and accuracy of the values that are to be recalled."""
    first = int((labels_BT[0] != IGNORED).nonzero()[0])
    keep = ids_BT.shape[1] - first + 1  # logits are needed from the token before the first label on
    logits = model(input_ids=ids_BT, logits_to_keep=keep, use_cache=False).logits[:, :-1]
    target = labels_BT[:, first:]
    scored = target != IGNORED
    logits, target = logits[scored], target[scored]
    return torch.nn.functional.cross_entropy(logits, target), (logits.argmax(-1) == target).float().mean()


def _optimizers(model: torch.nn.Module, settings: Training) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for all other parameters."""
    matrices: list[Tensor] = []
    gates: list[Tensor] = []
    rest: list[Tensor] = []
    for name, param in model.named_parameters():
        inner = "layers" in name and param.ndim == 2
        (gates if ".compressor." in name else matrices if inner else rest).append(param)
    groups = [{"params": rest, "lr": settings.lr_rest}, {"params": gates, "lr": settings.lr_gates}]
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=settings.lr_matrices),
        torch.optim.AdamW(
            [group for group in groups if group["params"]], betas=(0.9, 0.95), weight_decay=0.0
        ),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def _schedule(step: int, settings: Training) -> float:
    rise = min(1.0, (step + 1) / (settings.warmup + 1))
    fall = (settings.steps - step) / max(1.0, settings.decay * settings.steps)
    return min(rise, fall, 1.0)


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else old + SMOOTHING * (new - old)


def _check_shares(settings: Training, processes: int) -> None:
    """Every stage of the curriculum must give each process equally many sequences."""
    pairs = min(settings.first_pairs, settings.max_pairs)
    while True:
        rows = settings.rows_at(pairs)
        if rows % processes:
            raise UsageError(
                f"{rows} sequences a step at {pairs} pairs cannot be shared evenly by {processes} processes; "
                "choose rows and queries that can"
            )
        if pairs == settings.max_pairs:
            return
        pairs = min(2 * pairs, settings.max_pairs)


def _claim(out: Path, settings: Training) -> None:
    """Write the settings, or check that the folder holds a run of the same ones."""
    path, content = out / "training.json", dump_json(settings.model_dump(mode="json"))
    if path.exists() and path.read_text() != content:
        raise UsageError(
            f"{out} holds a run with other settings (see training.json there); use another --out folder"
        )
    write_atomic(path, content)


def _log(path: Path, progress: Progress) -> None:
    with path.open("a") as file:
        file.write(json.dumps(progress.model_dump()) + "\n")


def _cut_log(path: Path, step: int) -> None:
    """Drop lines that a kill left behind the last checkpoint."""
    if path.exists():
        lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        write_atomic(path, "".join(line for line in lines if json.loads(line)["step"] <= step))
