"""The training loop: one step after the other, by one process or many, resumable exactly."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from accelerate import Accelerator, PartialState
from torch import Tensor
from torch.optim import Optimizer

from ..errors import BrokenRecordError, UsageError
from ..files import LOCK, alone, dump_json, parse_json, read_record, write_atomic
from ..models import CompressedQwen3ForCausalLM
from ..text.corpus import Corpus
from .checkpoint import load_state, save_state
from .gates import compressors_of, imbalance, moved, reading_raw, watched
from .mixture import RECORDS, TEXT, Part, held_out_loss, loss_of, parts_of, rows_of
from .optim import optimizers_of, set_step_sizes
from .parallel import Parallel, Processes, average_gradients, clip, same, shard, whole
from .robust import SMOOTHING, phase_sums, running_losses
from .settings import Progress, Training
from .start import start_model
from .tracking import end_tracking, start_tracking, track_look, track_step, tracker_settings

__all__ = ["device", "held_out_loss", "is_main_process", "new_model", "train"]

SETTLE = 25  # steps after a change of difficulty before the next is considered
SETTINGS, LOG, CURVE = "training.json", "log.jsonl", "curve.jsonl"

Watch = Callable[[CompressedQwen3ForCausalLM, Progress], dict[str, Any]]


def train(
    settings: Training,
    out: Path,
    *,
    corpus: Corpus | None = None,
    start: Path | None = None,
    tracker: str | None = None,
    every: int = 100,
    watch: Watch | None = None,
    watch_every: int = 0,
    report: Callable[[Progress], None] = lambda progress: None,
    parallel: Parallel = "ddp",
) -> Progress:
    """Train, or go on training, and leave a checkpoint that `from_pretrained` loads.

    `out` receives `training.json` (the settings), `log.jsonl` (one line every `every` steps), `curve.jsonl` (what
    `watch` says), `state/` (what resume needs) and at the end the model. Batches depend on seed and step alone, so
    that a run killed and started again with the same settings ends with the same weights, bit for bit, on one
    process on a CPU. Several processes (`torchrun`, `accelerate launch`) share the sequences of each step; the result
    is that of one process, to rounding, and any number of them goes on with a run that another number began. The main
    process alone reads and writes `out`; all read the corpus.

    Args:
        settings: what to train.
        out: folder of the run.
        corpus: the text of `settings.text`.
        start: folder of the checkpoint of `settings.start`.
        tracker: a tracker of accelerate by name, such as tensorboard; its files are below `out/tracker`.
        every: steps between checkpoints.
        watch: looks at the model on the way (in evaluation mode, on the main process, while the others wait); its
            facts are kept with the step.
        watch_every: steps between two looks; 0 looks never.
        report: called after every step, on the main process.
        parallel: `ddp` keeps the whole model in every process; `fsdp` splits its matrices, gradients and optimizer
            states over all of them, for models that one device cannot hold.

    Returns:
        the progress at the end; losses and accuracy are running means on fresh sequences.

    Raises:
        UsageError: if `out` holds a run of other settings or is being written by another process, the corpus is
            another, or the sequences of a step cannot be shared evenly.
        BrokenRecordError: if the state in `out` or the corpus is damaged.
    """
    if parallel not in get_args(Parallel):
        raise UsageError(
            f"unknown way to run in parallel {parallel!r}; known: {', '.join(get_args(Parallel))}"
        )
    # Without a GPU accelerate must be told so, or the processes of `torchrun` never find each other.
    accelerator = Accelerator(cpu=not torch.accelerator.is_available(), **tracker_settings(tracker, out))
    processes = Processes.here()
    check_shares(settings, processes.count)
    _check_corpus(settings, corpus)
    if corpus is not None:
        processes.from_main(corpus.verify)
    model = new_model(settings, start)  # first, so that settings that make no model leave no folder behind
    run = _Run(settings, out, corpus, model, accelerator, processes, parallel)
    with ExitStack() as held:
        processes.from_main(lambda: _claim(out, settings, held))
        return run.finish(every, watch, watch_every, report)


@dataclass(frozen=True)
class _Run:
    """A run in a folder that is its own: what is trained, on what, and by whom."""

    settings: Training
    out: Path
    corpus: Corpus | None
    model: CompressedQwen3ForCausalLM
    accelerator: Accelerator
    processes: Processes
    parallel: Parallel

    def finish(
        self, every: int, watch: Watch | None, watch_every: int, report: Callable[[Progress], None]
    ) -> Progress:
        """From the last checkpoint to the last step."""
        model, processes, steps = self.model, self.processes, self.settings.steps
        model.to(self.accelerator.device)
        same(model, processes)
        if self.parallel == "fsdp":
            shard(model, bf16=self.settings.precision == "bf16")
        optimizers = optimizers_of(model, self.settings)
        kept = load_state(self.out / "state", model, optimizers, processes)
        progress = kept or Progress(pairs=self.settings.stages()[0])
        processes.from_main(lambda: _cut_logs(self.out, progress.step))
        model.train()
        start_tracking(self.accelerator, self.settings)
        while progress.step < steps:
            progress = self.step(progress, optimizers)
            track_step(self.accelerator, self.settings, progress)
            last = progress.step == steps
            if watch and watch_every and (progress.step % watch_every == 0 or last):
                self.look(progress, watch)
            if progress.step % every == 0 or last:
                if processes.main:  # first: resume cuts a line too many, and misses none
                    _log(self.out / LOG, progress.model_dump())
                save_state(self.out / "state", model, optimizers, progress, processes)
            if processes.main:
                report(progress)
        end_tracking(self.accelerator)
        finished = self.whole()
        if processes.main:
            finished.save_pretrained(self.out)
            for file in self.out.glob("*.safetensors"):  # which nobody else could read
                shutil.copymode(self.out / SETTINGS, file)
        processes.wait()
        return progress

    def look(self, progress: Progress, watch: Watch) -> None:
        """Keep what the watcher says of the model as it is, in evaluation mode on the main process."""
        model = self.whole()
        if self.processes.main:
            model.eval()
            facts = watch(model, progress)
            model.train()
            _log(self.out / CURVE, {"step": progress.step, **facts})
            track_look(self.accelerator, progress.step, facts)
        self.processes.wait()

    def whole(self) -> CompressedQwen3ForCausalLM:
        """The model with whole weights: itself, or of shards a copy in the main process; all must ask."""
        if self.parallel == "ddp":
            return self.model
        copy = self.model
        if self.processes.main:
            copy = CompressedQwen3ForCausalLM(self.model.config)
            torch.nn.Module.to(copy, self.model.device)
        into = dict(copy.named_parameters())
        with torch.no_grad():
            for name, param in self.model.named_parameters():
                found = whole(param)
                if self.processes.main:
                    into[name].copy_(found)
        return copy

    def step(self, progress: Progress, optimizers: list[Optimizer]) -> Progress:
        """One optimizer step, and the difficulty of the next."""
        started, settings, processes = time.perf_counter(), self.settings, self.processes
        parts = list(parts_of(settings, progress, self.corpus, processes.index, processes.count))
        set_step_sizes(optimizers, progress.step, settings)
        sums: dict[str, Tensor] = {}
        for part in parts:
            loss, facts = self.loss(progress, part)
            loss.backward()
            for name, value in facts.items():
                sums[name] = sums.get(name, 0) + value.detach() / settings.accumulate
        if progress.step < settings.raw_steps:
            # A gate that nothing reads yet stands still, and its optimizer counts.
            for param in (p for compressor in compressors_of(self.model) for p in compressor.parameters()):
                param.grad = torch.zeros_like(param) if param.requires_grad else None
        params = list(self.model.parameters())
        average_gradients(params, processes)
        clip(params, settings.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        flat = processes.mean(torch.cat([value.flatten() for value in sums.values()]))
        parted = flat.split([value.numel() for value in sums.values()])
        means = {name: part.view_as(sums[name]).tolist() for name, part in zip(sums, parted, strict=True)}
        tokens = sum(part.ids_BT.numel() for part in parts) * processes.count
        return _progress(settings, progress, means, tokens, time.perf_counter() - started)

    def loss(self, progress: Progress, part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        """A part's weighted loss, and what to keep of it."""
        settings, model = self.settings, self.model
        raw = progress.step < settings.raw_steps
        with ExitStack() as stack:
            stack.enter_context(
                torch.autocast(model.device.type, torch.bfloat16, settings.precision == "bf16")
            )
            if raw:
                stack.enter_context(reading_raw(model))
            if settings.random_shift:
                stack.enter_context(moved(model, part.shift))
            tallies = stack.enter_context(watched(model)) if settings.balance and not raw else []
            loss, hits, losses_BK = loss_of(model, part, model.device)
            grids = [compressor.grids for compressor in compressors_of(model)]
        mean = losses_BK.mean()
        facts = {"loss": mean, "accuracy": hits} if part.kind == RECORDS else {"text_loss": mean}
        if part.phases_BK is not None and settings.compression is not None:
            facts["phases"] = phase_sums(losses_BK, part.phases_BK, settings.compression.stride)
        weighted = part.weight * loss
        masses = [torch.stack(tally).mean(0) for tally in tallies if tally]
        if masses:
            # The penalty is one on all processes' sequences together; each adds the gradient through its own.
            masses = [mass + (self.processes.mean(mass) - mass.detach()) for mass in masses]
            uneven = imbalance(masses, grids)
            weighted = weighted + settings.balance * part.weight * uneven
            if part.kind == (RECORDS if settings.task else TEXT):
                facts["imbalance"] = uneven
        return weighted, facts


def new_model(settings: Training, start: Path | None = None) -> CompressedQwen3ForCausalLM:
    """The model before its first step: its weights follow from the seed, and no other draw is disturbed."""
    if settings.start is not None:
        return start_model(settings, start)
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        model = CompressedQwen3ForCausalLM(settings.architecture())
        # At Qwen3's 0.02 the first updates of the layers drown the token's identity in the residual stream.
        torch.nn.init.normal_(model.model.embed_tokens.weight, std=settings.embedding_std)
        if settings.matrix_init == "fan_in":
            for name, param in model.named_parameters():
                if "layers" in name and param.ndim == 2:
                    torch.nn.init.uniform_(param, -(param.shape[1] ** -0.5), param.shape[1] ** -0.5)
    if settings.shared_start and settings.compression is not None:
        plain = new_model(settings.model_copy(update={"compression": None}))
        mine = model.state_dict()
        shared = {name: value for name, value in plain.state_dict().items() if name in mine}
        model.load_state_dict(shared, strict=False)
    return model


def device() -> str:
    """Where this process trains: cpu, cuda:0, …."""
    return str(PartialState().device)


def is_main_process() -> bool:
    """Whether this is the one process that writes files; true without `torchrun`."""
    return bool(PartialState().is_main_process)


def _progress(
    settings: Training, old: Progress, now: dict[str, Any], tokens: int, seconds: float
) -> Progress:
    phases = now.pop("phases", None)
    if wrong := [name for name, value in now.items() if not math.isfinite(value)]:
        raise UsageError(
            f"training diverged: {wrong[0]} is {now[wrong[0]]} at step {old.step + 1}; start again with smaller step "
            "sizes or more warm-up, in another --out folder"
        )
    means = {name: _smooth(getattr(old, name), value) for name, value in now.items()}
    pairs, since = old.pairs, old.since + 1
    easy = "loss" in means and means["loss"] < settings.promote
    if since >= SETTLE and easy and pairs < settings.max_pairs:
        pairs, since = min(2 * pairs, settings.max_pairs), 0
    return Progress(
        step=old.step + 1,
        pairs=pairs,
        since=since,
        tokens=old.tokens + tokens,
        seconds=old.seconds + seconds,
        phase_losses=running_losses(old.phase_losses, phases) if phases else (),
        **means,
    )


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else old + SMOOTHING * (new - old)


def check_shares(settings: Training, processes: int) -> None:
    """Every part of every step must have equally many sequences, in each process."""
    shares = processes * settings.accumulate
    for name, rows in rows_of(settings):
        if rows % shares:
            raise UsageError(
                f"{rows} {name} of a step cannot be shared evenly by {processes} processes that read them in "
                f"{settings.accumulate} parts; choose numbers that can"
            )


def _check_corpus(settings: Training, corpus: Corpus | None) -> None:
    """The text must be the one that the settings name."""
    wanted = None if settings.text is None else settings.text.corpus
    if wanted != (None if corpus is None else corpus.facts.digest):
        raise UsageError(
            "the settings name no text, and a corpus was given"
            if wanted is None
            else f"the settings name the corpus {wanted[:12]}…, and {corpus.folder if corpus else 'none'} was given"
        )
    if settings.text is not None and corpus is not None:
        corpus.check(settings.text.tokens)


def _claim(out: Path, settings: Training, held: ExitStack) -> None:
    """Hold the folder, and write the settings there or check that it has a run of the same ones."""
    held.enter_context(alone(out))
    path = out / SETTINGS
    if not path.exists() and any(file.name != LOCK for file in out.iterdir()):
        raise UsageError(
            f"{out} holds files that are no training run's; name a folder that is empty or not there yet"
        )
    if path.exists() and read_record(path, Training) != settings:
        raise UsageError(
            f"{out} holds a run with other settings (see training.json there); use another --out folder"
        )
    write_atomic(path, dump_json(settings.model_dump(mode="json")))


def _log(path: Path, facts: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(facts) + "\n")


def _cut_logs(out: Path, step: int) -> None:
    """Drop lines that a kill left behind the last checkpoint."""
    for path in (path for path in (out / LOG, out / CURVE) if path.exists()):
        lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        kept = [line for number, line in enumerate(lines, 1) if _step_of(path, number, line) <= step]
        write_atomic(path, b"".join(kept))


def _step_of(path: Path, number: int, line: bytes) -> int:
    where = f"{path}, line {number}"
    record = parse_json(line, where)
    step = record.get("step") if isinstance(record, dict) else None
    if not isinstance(step, int):
        raise BrokenRecordError(f"{where} has no step; restore the line or take it out")
    return step
