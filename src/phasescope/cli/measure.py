"""`phasescope measure`: ask models the same questions at every residue."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .extras import need_models
from .progress import bar
from .server import (
    Concurrency,
    Deadline,
    KeyVariable,
    PerMinute,
    Timeout,
    Tries,
    limits,
    quiet_retries,
    window_grids,
)


class Runs(StrEnum):
    """Who runs the models."""

    transformers = "transformers"
    openai = "openai"


class Form(StrEnum):
    """How a server is given its prompts."""

    ids = "ids"
    text = "text"
    chat = "chat"


def measure(
    out: Annotated[Path, typer.Option(help="The run folder; the same command resumes what it finds there.")],
    models: Annotated[
        list[str] | None, typer.Argument(help="Zoo names or checkpoint folders; name a control too.")
    ] = None,
    protocol: Annotated[list[str] | None, typer.Option(help="A protocol's name; may be repeated.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Records in a context; by default as many as the cards name.", min=1)
    ] = None,
    contexts: Annotated[int, typer.Option(help="Contexts; 25 or more for intervals to hold.", min=1)] = 25,
    questions: Annotated[int | None, typer.Option(help="Records asked per context.", min=1)] = None,
    residues: Annotated[int, typer.Option(help="Layouts per context.", min=2)] = 24,
    seed: Annotated[int, typer.Option(help="Seed of every draw.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="Where torch runs the models.")] = "cpu",
    threads: Annotated[
        int, typer.Option(help="CPU threads; part of the run, as sums depend on it.", min=1)
    ] = 2,
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that a checkpoint brings along.")] = False,
    backend: Annotated[Runs, typer.Option(help="Models on this machine, or an OpenAI-compatible server.")] = (
        Runs.transformers
    ),
    base_url: Annotated[str | None, typer.Option(help="Server: its address.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Server: a model's name there; may be repeated.")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="Server: folder of its models' tokenizer.")] = None,
    key_env: KeyVariable = None,
    concurrency: Concurrency = 4,
    requests_per_minute: PerMinute = None,
    timeout: Timeout = 600.0,
    tries: Tries = 8,
    deadline: Deadline = None,
    prefix_cache: Annotated[
        bool, typer.Option(help="Server: keep its prefix cache warm instead of switching it off.")
    ] = False,
    unverified: Annotated[
        bool, typer.Option(help="Server: measure even if nothing tells which tokens it reads.")
    ] = False,
    ask: Annotated[
        Form | None, typer.Option(help="Server: form of the prompts; else the best it takes.")
    ] = None,
    top_logprobs: Annotated[
        int | None,
        typer.Option(help="Server: log-probabilities per token at most; else all it gives.", min=0),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Server: its models' grid, such as W8/S4+4, or 'none' for a control; may be repeated."
        ),
    ] = None,
) -> None:
    """Ask every model every question at every residue, and log the answers in a run folder."""
    sizes = {"contexts": contexts, "questions": questions, "residues": residues}
    with bar() as progress:
        task = progress.add_task("trials", total=None, note="")

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        if backend is Runs.transformers:
            if base_url is not None:
                raise UsageError("--base-url is the address of a server; add --backend openai")
            if not models:
                raise UsageError(
                    "no model named; give zoo names or checkpoint folders, see `phasescope list`"
                )
            need_models(threads).measure(
                models,
                protocol or ["prefix"],
                out,
                seed=seed,
                report=report,
                device=device,
                trust_remote_code=trust_remote_code,
                pairs=pairs,
                **sizes,
            )
        else:
            if base_url is None:
                raise UsageError("--backend openai needs --base-url, such as http://localhost:8000/v1")
            from ..experiments import measure_server

            quiet_retries()
            measure_server(
                base_url,
                [*(models or []), *(model or [])],
                protocol or ["prefix"],
                out,
                seed=seed,
                tokenizer=tokenizer,
                pairs=pairs,
                report=report,
                limits=limits(concurrency, requests_per_minute, timeout, tries, deadline),
                grids=window_grids(grid),
                sizes=sizes,
                key_env=key_env,
                ask=ask and ask.value,
                top_logprobs=top_logprobs,
                prefix_cache=prefix_cache,
                unverified=unverified,
            )
    print(f"wrote {out}; next: phasescope report {out}")
