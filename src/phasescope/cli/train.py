"""`phasescope train`: train a compressed model on synthetic key-value retrieval."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .extras import need, need_models
from .progress import bar

FULL = "none"
GRID_OPTIONS = ("width", "stride", "tail", "shift", "binding", "rotary", "sink", "setting")


def train(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option(help="Folder of the run; the same command resumes what it finds there.")
    ],
    compressor: Annotated[
        str, typer.Option(help="A compressor's name, or 'none' for full attention.")
    ] = FULL,
    width: Annotated[int, typer.Option(help="Tokens per window.")] = 8,
    stride: Annotated[int, typer.Option(help="Tokens from one window's start to the next.")] = 8,
    tail: Annotated[int, typer.Option(help="The last n tokens are read raw as well.")] = 0,
    shift: Annotated[int, typer.Option(help="Tokens by which the grid is moved back.")] = 0,
    binding: Annotated[bool, typer.Option(help="Key and value are one tensor.")] = False,
    rotary: Annotated[float, typer.Option(help="Share of each head's channels that is rotated.")] = 1.0,
    sink: Annotated[bool, typer.Option(help="One more logit per query head, with nothing to read.")] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="NAME=NUMBER of the compressor, such as topk=64; may be repeated."),
    ] = None,
    kv_heads: Annotated[int, typer.Option(help="KV heads per layer.")] = 2,
    heads: Annotated[int, typer.Option(help="Query heads per layer.")] = 4,
    head_dim: Annotated[int, typer.Option(help="Channels per head.")] = 32,
    layers: Annotated[int, typer.Option(help="Layers.")] = 2,
    hidden_size: Annotated[int, typer.Option(help="Model width.")] = 64,
    max_pairs: Annotated[int, typer.Option(help="Records per context at which the curriculum ends.")] = 16,
    promote: Annotated[
        float, typer.Option(help="Running loss, in nats, below which the number of records doubles.")
    ] = 2.0,
    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of every batch.", min=0)] = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 1,
) -> None:
    """Train a small Qwen3 with a compressed KV cache to recall records, and measure its phase curve."""
    if compressor == FULL and (given := _grid_options(context)):
        raise UsageError(
            f"{given} says how to compress, and there is no --compressor; name one, or leave it out"
        )
    experiments, training = need_models(threads), need("phasescope.training")
    compression = {
        "compressor": compressor,
        "width": width,
        "stride": stride,
        "shift": shift,
        "tail": tail,
        "binding": binding,
        "rotary": rotary,
        "sink": sink,
        "settings": dict(map(_setting, setting or ())),
    }
    settings = training.Training.checked(
        compression=None if compressor == FULL else compression,
        kv_heads=kv_heads,
        heads=heads,
        head_dim=head_dim,
        layers=layers,
        width=hidden_size,
        max_pairs=max_pairs,
        promote=promote,
        steps=steps,
        seed=seed,
    )
    with bar() as progress:
        task = progress.add_task("training", total=steps, note="")
        training.train(
            settings,
            out,
            every=checkpoint_every,
            report=lambda now: progress.update(
                task,
                completed=now.step,
                note=f"{now.pairs} pairs, loss {now.loss:.3f}, accuracy {now.accuracy:.1%}",
            ),
        )
        if not training.is_main_process():
            return
        task = progress.add_task("measuring", total=None, note="")
        card = experiments.write_card(
            out,
            command=shlex.join(["phasescope", *sys.argv[1:]]),
            report=lambda done, total: progress.update(task, completed=done, total=total),
        )
    for protocol, found in card["measured"].items():
        print(
            f"{out}: {protocol}: accuracy {found['mean_accuracy']:.1%} at {card['pairs']} pairs, "
            f"phase SD {found['phase_sd']:.1%} ({found['low']:.1%} to {found['high']:.1%})"
        )


def _grid_options(context: typer.Context) -> str:
    """Options of a grid that the command line names, for a refusal."""
    named = [
        name
        for name in GRID_OPTIONS
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    return ", ".join(f"--{name}" for name in named)


def _setting(text: str) -> tuple[str, float]:
    """A compressor's setting from NAME=NUMBER."""
    name, _, value = text.partition("=")
    try:
        return name, int(value) if value.strip("-").isdigit() else float(value)
    except ValueError:
        raise UsageError(f"--setting {text} is not NAME=NUMBER; give for example --setting topk=64") from None
