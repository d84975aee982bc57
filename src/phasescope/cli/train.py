"""`phasescope train`: train a compressed model on records, on text, or on both."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from .extras import need, need_models
from .options import options_from, said
from .progress import bar

FULL = "none"


class Optimizers(StrEnum):
    """What moves the weight matrices of the layers."""

    muon = "muon"
    adamw = "adamw"


class Schedules(StrEnum):
    """How step sizes fall at the end."""

    linear = "linear"
    cosine = "cosine"


class Roles(StrEnum):
    """Whether a token tells by itself that it is a key or a value."""

    fixed = "fixed"
    drawn = "drawn"


class Ways(StrEnum):
    """How several processes hold the model: whole, or in shards."""

    ddp = "ddp"
    fsdp = "fsdp"


class Precisions(StrEnum):
    """In which floating point most products are computed."""

    fp32 = "fp32"
    bf16 = "bf16"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How the KV cache is folded; fields of `Compression`."""

    compressor: Annotated[str, typer.Option(help="A compressor's name, or 'none' for full attention.")] = FULL
    width: Annotated[int, typer.Option(help="Tokens per window.")] = 8
    stride: Annotated[int, typer.Option(help="Tokens from one window's start to the next.")] = 8
    tail: Annotated[int, typer.Option(help="The last n tokens are read raw as well.")] = 0
    shift: Annotated[
        str,
        typer.Option(
            help="Tokens by which the grid is moved back: 4; per layer: 0,4; per layer and KV head: 0,4;2,6."
        ),
    ] = "0"
    binding: Annotated[bool, typer.Option(help="Key and value are one tensor.")] = False
    rotary: Annotated[float, typer.Option(help="Share of each head's channels that is rotated.")] = 1.0
    sink: Annotated[bool, typer.Option(help="One more logit per query head, with nothing to read.")] = False
    setting: Annotated[
        list[str] | None,
        typer.Option(help="NAME=NUMBER of the compressor, such as topk=64; may be repeated."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the model; fields of `Training`."""

    kv_heads: Annotated[int, typer.Option(help="KV heads per layer.")] = 2
    heads: Annotated[int, typer.Option(help="Query heads per layer.")] = 4
    head_dim: Annotated[int, typer.Option(help="Channels per head.")] = 32
    layers: Annotated[int, typer.Option(help="Layers.")] = 2
    hidden_size: Annotated[int, typer.Option(help="Model width.")] = 64
    feed_forward: Annotated[int, typer.Option(help="Width of the feed-forward part.")] = 128
    tie_embeddings: Annotated[bool, typer.Option(help="The embedding is the output matrix as well.")] = False
    rope_theta: Annotated[float, typer.Option(help="Base of the rotary embedding's wavelengths.")] = 10000.0


@dataclass(frozen=True, kw_only=True)
class Records:
    """The records in the mixture; fields of `RetrievalTask` and `Training`."""

    fillers: Annotated[int, typer.Option(help="The most filler tokens around the records.")] = 72
    keys: Annotated[int, typer.Option(help="Different keys, and as many values, to draw records from.")] = 112
    roles: Annotated[
        Roles, typer.Option(help="drawn: any token may be a key, a value or a filler, anew per sequence.")
    ] = Roles.fixed
    rows: Annotated[int, typer.Option(help="Sequences of records per step, while they are short.")] = 48
    queries: Annotated[int, typer.Option(help="The most values to recall per step.")] = 768
    first_pairs: Annotated[int, typer.Option(help="Records per context at which the curriculum begins.")] = 4
    max_pairs: Annotated[int, typer.Option(help="Records per context at which the curriculum ends.")] = 16
    promote: Annotated[
        float, typer.Option(help="Running loss, in nats, below which the number of records doubles.")
    ] = 2.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The text in the mixture; fields of `Text`."""

    text_rows: Annotated[int, typer.Option(help="Windows of text per step.")] = 8
    text_tokens: Annotated[int, typer.Option(help="Tokens of a window of text.")] = 256
    text_weight: Annotated[
        float, typer.Option(help="Weight of the text's mean loss; that of recall is 1.")
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How weights move; fields of `Training`."""

    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 4000
    optimizer: Annotated[
        Optimizers, typer.Option(help="For the layers' weight matrices; AdamW moves the rest.")
    ] = Optimizers.muon
    lr_matrices: Annotated[float, typer.Option(help="Step size of the layers' weight matrices.")] = 0.01
    lr_gates: Annotated[float, typer.Option(help="Step size of the compressors.")] = 0.004
    lr_rest: Annotated[float, typer.Option(help="Step size of embeddings, head and norms.")] = 0.004
    warmup: Annotated[int, typer.Option(help="Steps in which step sizes rise.")] = 20
    decay: Annotated[float, typer.Option(help="The last share of the steps, in which they fall to 0.")] = 0.2
    schedule: Annotated[Schedules, typer.Option(help="How they fall.")] = Schedules.linear
    weight_decay: Annotated[float, typer.Option(help="Decay of the layers' weight matrices.")] = 0.0
    clip: Annotated[float, typer.Option(help="The gradient's norm is cut to this.")] = 1.0
    accumulate: Annotated[int, typer.Option(help="Read each step in so many parts, to save memory.")] = 1
    precision: Annotated[
        Precisions, typer.Option(help="bf16 computes in bfloat16; weights stay float32.")
    ] = Precisions.fp32
    embedding_std: Annotated[float, typer.Option(help="Spread of random token embeddings.")] = 1.0
    balance: Annotated[float, typer.Option(help="Weight of the penalty on uneven gates.")] = 0.0
    robust: Annotated[
        float, typer.Option(help="Weigh records by their phase's running loss to this power.")
    ] = 0.0
    robust_after: Annotated[int, typer.Option(help="Steps before --robust begins.")] = 0
    random_shift: Annotated[bool, typer.Option(help="Move the grid anew for every part that is read.")] = (
        False
    )
    raw_steps: Annotated[int, typer.Option(help="Compress nothing in so many first steps.")] = 0
    shared_start: Annotated[
        bool, typer.Option(help="Start from the weights that full attention has with the same seed.")
    ] = False
    seed: Annotated[int, typer.Option(help="Seed of the weights and of every batch.", min=0)] = 0


@options_from(grid=Grid, shape=Shape, records=Records, reading=Reading, steps=Steps)
def train(
    context: typer.Context,
    grid: Grid,
    shape: Shape,
    records: Records,
    reading: Reading,
    steps: Steps,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; the same command resumes what it finds there.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="NAME/ROW: start from these settings; what is given beside it wins.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Text beside the records; see phasescope corpus.")
    ] = None,
    with_records: Annotated[
        bool, typer.Option("--records/--no-records", help="Whether there are records beside the text.")
    ] = True,
    start: Annotated[
        str | None,
        typer.Option("--from", help="Start from a plain Qwen3 checkpoint: a folder, or a zoo name."),
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    watch_every: Annotated[
        int, typer.Option(help="Steps between looks at held-out loss and phase curve; 0 for none.", min=0)
    ] = 0,
    tracker: Annotated[
        str | None, typer.Option(help="tensorboard, or another tracker of accelerate by name.")
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(help="Measure held-out loss and phase curve at the end, and write them in the card."),
    ] = True,
    parallel: Annotated[
        Ways, typer.Option(help="With torchrun: whole models (ddp), or matrices in shards (fsdp).")
    ] = Ways.ddp,
    plan: Annotated[bool, typer.Option("--plan", help="Say what the run will take, and stop.")] = False,
    processes: Annotated[int, typer.Option(help="Plan: for so many processes.", min=1)] = 1,
    accelerator: Annotated[
        str | None, typer.Option(help="Plan: for this kind of accelerator; here: try a few steps.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 1,
) -> None:
    """Train a Qwen3 with a compressed KV cache on records, on text or on both, and measure its phase curve."""
    experiments = need_models(threads)
    need("phasescope.training")
    inputs = experiments.Inputs(corpus=corpus, start=start)
    settings = experiments.training_settings(
        inputs,
        recipe=recipe,
        records=with_records,
        compression=_compression(said(context, grid)),
        text={name.removeprefix("text_"): value for name, value in said(context, reading).items()},
        **_training({**said(context, shape), **said(context, records), **said(context, steps)}),
    )
    if plan:
        print("\n".join(experiments.cost(settings, processes=processes, accelerator=accelerator)))
        return
    if accelerator is not None or processes > 1:
        raise UsageError("--accelerator and --processes are for --plan; a run takes what `torchrun` gives it")
    if out is None:
        raise UsageError("give --out, the folder of the run; or --plan to see what it would take")
    with bar() as progress:
        training = progress.add_task("training", total=settings.steps, note="")
        measuring = progress.add_task("measuring", total=None, note="", start=False, visible=False)
        card = experiments.train(
            settings,
            out,
            inputs,
            command=shlex.join(["phasescope", *context.obj]),
            every=checkpoint_every,
            watch_every=watch_every,
            tracker=tracker,
            parallel=parallel.value,
            measured=measure,
            report=lambda now: progress.update(training, completed=now.step, note=_note(now)),
            measuring=lambda done, total: progress.update(
                measuring, completed=done, total=total, visible=True
            ),
        )
    if card is not None:
        print("\n".join(_summary(out, card) or [f"wrote {out}"]))


def _compression(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Compression`."""
    fields = {name: value for name, value in given.items() if name != "setting"}
    if "setting" in given:
        fields["settings"] = dict(map(_setting, given["setting"]))
    if "shift" in given:
        fields["shift"] = _shift(given["shift"])
    return fields


def _training(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Training`, and under `task` those of `RetrievalTask`."""
    task = {name: given[name] for name in ("fillers", "keys", "roles") if name in given}
    return {"task": task, **{name: value for name, value in given.items() if name not in task}}


def _note(now: Any) -> str:
    """What the progress bar says of a step."""
    facts = []
    if now.loss is not None:
        facts.append(f"{now.pairs} pairs, loss {now.loss:.3f}, accuracy {now.accuracy:.1%}")
    if now.text_loss is not None:
        facts.append(f"text {now.text_loss:.3f}")
    return ", ".join(facts)


def _summary(out: Path, card: Mapping[str, Any]) -> list[str]:
    """What a card says, in lines."""
    lines = [
        f"{out}: {protocol}: accuracy {found['mean_accuracy']:.1%} at {card['pairs']} pairs, "
        f"phase SD {found['phase_sd']:.1%} ({found['low']:.1%} to {found['high']:.1%})"
        for protocol, found in card.get("measured", {}).items()
    ]
    text = card.get("text", {})
    if "windows" in text:
        lines.append(
            f"{out}: held-out text: {text['nats_per_token']:.3f} nats per token, {text['nats_per_byte']:.3f} per byte, "
            f"on {text['windows']} windows of {text['window']} tokens"
        )
    return lines


def _shift(text: str) -> int | tuple[int, ...] | tuple[tuple[int, ...], ...]:
    """Shifts of a grid: one, one per layer, or one per layer and KV head."""
    try:
        if ";" in text:
            layers = text.rstrip("; ").split(";")
            return tuple(tuple(map(int, layer.split(","))) for layer in layers)
        if "," in text:
            return tuple(map(int, text.split(",")))
        return int(text)
    except ValueError:
        raise UsageError(
            f"--shift {text} is no number of tokens; give 4, one per layer (0,4), or one per layer and KV head "
            "(0,4;2,6)"
        ) from None


def _setting(text: str) -> tuple[str, float]:
    """A compressor's setting from NAME=NUMBER."""
    name, _, value = text.partition("=")
    try:
        return name, int(value) if value.strip("-").isdigit() else float(value)
    except ValueError:
        raise UsageError(f"--setting {text} is not NAME=NUMBER; give for example --setting topk=64") from None
