"""`phasescope train`: train a compressed model on synthetic key-value retrieval."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from .extras import need
from .progress import bar

FULL = "none"


def train(
    out: Annotated[
        Path, typer.Option(help="Folder of the run; the same command resumes what it finds there.")
    ],
    compressor: Annotated[
        str, typer.Option(help="A compressor's name, or 'none' for full attention.")
    ] = FULL,
    width: Annotated[int, typer.Option(help="Tokens per window.")] = 8,
    stride: Annotated[int, typer.Option(help="Tokens from one window's start to the next.")] = 8,
    tail: Annotated[int, typer.Option(help="The last n tokens are read raw as well.")] = 0,
    kv_heads: Annotated[int, typer.Option(help="KV heads per layer.")] = 2,
    heads: Annotated[int, typer.Option(help="Query heads per layer.")] = 4,
    layers: Annotated[int, typer.Option(help="Layers.")] = 2,
    hidden_size: Annotated[int, typer.Option(help="Model width.")] = 64,
    max_pairs: Annotated[int, typer.Option(help="Records per context at which the curriculum ends.")] = 16,
    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of every batch.", min=0)] = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 1,
) -> None:
    """Train a small Qwen3 with a compressed KV cache to recall records, and measure its phase curve."""
    need("torch").set_num_threads(threads)
    training, experiments = need("phasescope.training"), need("phasescope.experiments")
    grid = {"compressor": compressor, "width": width, "stride": stride, "tail": tail}
    settings = training.Training.checked(
        compression=None if compressor == FULL else grid,
        kv_heads=kv_heads,
        heads=heads,
        layers=layers,
        width=hidden_size,
        max_pairs=max_pairs,
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
