"""`phasescope measure`: ask models the same questions at every residue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from .engine import EngineOption, WorkersOption, engine_of
from .extras import need_models
from .plan import (
    AccuracyOption,
    CalibrateOption,
    EffectOption,
    JsonOption,
    PlanOption,
    PriceInOption,
    PriceOutOption,
    show_plan,
)
from .progress import bar

LOADING = "Loading"


def measure(
    models: Annotated[list[str], typer.Argument(help="Zoo names or checkpoint folders; name a control too.")],
    out: Annotated[
        Path | None, typer.Option(help="The run folder; the same command resumes what it finds there.")
    ] = None,
    protocol: Annotated[list[str] | None, typer.Option(help="A protocol's name; may be repeated.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Records in a context; by default as many as the cards name.", min=1)
    ] = None,
    contexts: Annotated[int, typer.Option(help="Contexts; 25 or more for intervals to hold.", min=1)] = 25,
    questions: Annotated[int | None, typer.Option(help="Records asked per context.", min=1)] = None,
    residues: Annotated[int, typer.Option(help="Layouts per context.", min=2)] = 24,
    seed: Annotated[int, typer.Option(help="Seed of every draw.", min=0)] = 0,
    device: Annotated[
        str,
        typer.Option(help="Where torch runs the models; cuda is a GPU per worker.", rich_help_panel=LOADING),
    ] = "cpu",
    device_map: Annotated[
        str | None,
        typer.Option(help="Spread one model over several GPUs: auto, balanced, ….", rich_help_panel=LOADING),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="auto (the checkpoint's own), float32, bfloat16, …", rich_help_panel=LOADING)
    ] = "auto",
    attention: Annotated[
        str | None, typer.Option(help="sdpa, eager, flash_attention_2, …", rich_help_panel=LOADING)
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens of context in one forward; bounds the memory.", min=1, rich_help_panel=LOADING
        ),
    ] = None,
    prefill_chunk: Annotated[
        int, typer.Option(help="Tokens of a prompt that one forward reads.", min=1, rich_help_panel=LOADING)
    ] = 4096,
    threads: Annotated[
        int,
        typer.Option(
            help="CPU threads of each worker; part of the run, as sums depend on it.",
            min=1,
            rich_help_panel=LOADING,
        ),
    ] = 2,
    trust_remote_code: Annotated[
        bool, typer.Option(help="Run code that a checkpoint brings along.", rich_help_panel=LOADING)
    ] = False,
    engine: EngineOption = None,
    workers: WorkersOption = 1,
    plan: PlanOption = False,
    json: JsonOption = None,
    accuracy: AccuracyOption = 0.5,
    effect: EffectOption = 5.0,
    price_in: PriceInOption = 0.0,
    price_out: PriceOutOption = 0.0,
    calibrate: CalibrateOption = 5.0,
) -> None:
    """Ask every model every question at every residue, and log the answers in a run folder."""
    if out is None and not plan:
        raise UsageError("give --out, the run folder; or --plan to see what the run would cost")
    if json is not None and not plan:
        raise UsageError("--json writes a plan; give --plan too")
    if device_map is not None and workers > 1 and engine != "ray":
        raise UsageError(
            f"--device-map {device_map} spreads one model over all GPUs; give 1 worker instead of {workers}"
        )
    answering = engine_of(engine, workers)
    experiments = need_models(threads)
    loading = {
        "device": device,
        "device_map": device_map,
        "dtype": dtype,
        "attention": attention,
        "max_tokens": max_tokens,
        "prefill_chunk": prefill_chunk,
        "threads": threads,
        "trust_remote_code": trust_remote_code,
    }
    arms = experiments.model_arms(
        models,
        protocol or ["prefix"],
        pairs=pairs,
        loading=loading,
        contexts=contexts,
        questions=questions,
        residues=residues,
    )
    if plan:
        show_plan(
            arms,
            seed,
            accuracy=accuracy,
            effect=effect,
            price_in=price_in,
            price_out=price_out,
            calibrate=calibrate,
            workers=workers,
            json=json,
        )
        return
    with bar() as progress:
        task = progress.add_task("trials", total=None, note="")
        experiments.run(
            arms, out, seed, lambda done, total: progress.update(task, completed=done, total=total), answering
        )
    print(f"wrote {out}; next: phasescope report {out}")
