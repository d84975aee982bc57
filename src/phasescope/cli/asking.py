"""The options of every command that asks models: who answers, how they are loaded, where, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ..running import Engine
from ..running.runner import Condition, run
from ..verbs.answerers import Answerer, local, served
from ..verbs.measure import refuse_other_run
from .engine import EngineOption, WorkersOption, engine_of
from .extras import check_models, prepare_models
from .options import command_line, options_from
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
from .progress import shown
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


@dataclass(frozen=True, kw_only=True)
class Asking:
    """What the command line says of who answers; each field is an option, by `with_asking`."""

    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json or its folder; by default the model's own.")
    ] = None
    backend: Annotated[Runs, typer.Option(help="Models on this machine, or an OpenAI-compatible server.")] = (
        Runs.transformers
    )
    device: Annotated[str, typer.Option(help="Where torch runs the models; cuda is a GPU per worker.")] = (
        "cpu"
    )
    device_map: Annotated[
        str | None, typer.Option(help="Spread one model over several GPUs: auto, balanced, ….")
    ] = None
    dtype: Annotated[str, typer.Option(help="auto (the checkpoint's own), float32, bfloat16, …")] = "auto"
    attention: Annotated[str | None, typer.Option(help="sdpa, eager, flash_attention_2, …")] = None
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens of context in one forward; bounds the memory.", min=1)
    ] = None
    prefill_chunk: Annotated[int, typer.Option(help="Tokens of a prompt that one forward reads.", min=1)] = (
        4096
    )
    threads: Annotated[
        int, typer.Option(help="CPU threads of each worker; part of the run, as sums depend on it.", min=1)
    ] = 2
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that a checkpoint brings along.")] = False
    engine: EngineOption = None
    workers: WorkersOption = 1
    base_url: Annotated[str | None, typer.Option(help="Server: its address.")] = None
    key_env: KeyVariable = None
    concurrency: Concurrency = 4
    requests_per_minute: PerMinute = None
    timeout: Timeout = 600.0
    tries: Tries = 8
    deadline: Deadline = None
    prefix_cache: Annotated[
        bool, typer.Option(help="Server: keep its prefix cache warm instead of switching it off.")
    ] = False
    unverified: Annotated[
        bool, typer.Option(help="Server: measure even if nothing tells which tokens it reads.")
    ] = False
    ask: Annotated[Form | None, typer.Option(help="Server: form of the prompts; else the best it takes.")] = (
        None
    )
    top_logprobs: Annotated[
        int | None,
        typer.Option(help="Server: log-probabilities per token at most; else all it gives.", min=0),
    ] = None
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Server: its models' grid, such as W8/S4+4, or 'none' for a control; may be repeated."
        ),
    ] = None
    plan: PlanOption = False
    json: JsonOption = None
    accuracy: AccuracyOption = 0.5
    effect: EffectOption = 5.0
    price_in: PriceInOption = 0.0
    price_out: PriceOutOption = 0.0
    calibrate: CalibrateOption = 5.0

    def check(self) -> None:
        """Refuse what does not go together or is not installed, before anything heavy is imported.

        Raises:
            UsageError: for options that do not go together.
            MissingExtraError: naming the extra to install.
        """
        if self.json is not None and not self.plan:
            raise UsageError("--json writes a plan; give --plan too")
        if self.backend is Runs.openai:
            if self.base_url is None:
                raise UsageError("--backend openai needs --base-url, such as http://localhost:8000/v1")
            return
        if self.base_url is not None:
            raise UsageError("--base-url is the address of a server; add --backend openai")
        if self.device_map is not None and self.workers > 1 and self.engine != "ray":
            raise UsageError(
                f"--device-map {self.device_map} spreads one model over all GPUs; give 1 worker instead of "
                f"{self.workers}"
            )
        check_models(self.threads)

    def answerers(self, models: Sequence[str], controls: Sequence[str] = ()) -> list[Answerer]:
        """The models, of which the controls have no grid by the user's word.

        Raises:
            UsageError: for none, or one that is not there.
        """
        if self.backend is Runs.transformers and self.base_url is None and not (models or controls):
            raise UsageError("no model named; give zoo names or checkpoint folders, see `phasescope list`")
        self.check()
        if self.backend is Runs.openai:
            return self._served(models, controls)
        loading = {
            name: getattr(self, name)
            for name in (
                "device",
                "device_map",
                "dtype",
                "attention",
                "max_tokens",
                "prefill_chunk",
                "threads",
            )
        }
        settings: dict[str, Any] = {
            "loading": {**loading, "trust_remote_code": self.trust_remote_code},
            "tokenizer": self.tokenizer,
        }
        return [
            *local(models, **settings),
            *local(controls, **settings, control=True),
        ]

    def _served(self, models: Sequence[str], controls: Sequence[str]) -> list[Answerer]:
        quiet_retries()
        settings: dict[str, Any] = {
            "tokenizer": self.tokenizer,
            "limits": limits(
                self.concurrency, self.requests_per_minute, self.timeout, self.tries, self.deadline
            ),
            "key_env": self.key_env,
            "ask": self.ask and self.ask.value,
            "top_logprobs": self.top_logprobs,
            "prefix_cache": self.prefix_cache,
            "unverified": self.unverified,
        }
        grids = window_grids(self.grid)
        found = [] if controls and not models else served(str(self.base_url), models, **settings, grids=grids)
        return [
            *found,
            *(served(str(self.base_url), controls, **settings, grids=[]) if controls else []),
        ]

    def made_engine(self) -> Engine:
        """The engine that these options name."""
        return engine_of(self.engine, self.workers)

    def go(self, conditions: Sequence[Condition], out: Path | None, seed: int) -> bool:
        """Run the conditions, or show what they would cost.

        Returns:
            whether they were run.

        Raises:
            UsageError: without a run folder, unless only the plan is asked for.
        """
        if not self.plan and out is None:
            raise UsageError("give --out, the run folder; or --plan to see what the run would cost")
        if out is not None and not self.plan:
            refuse_other_run(out, conditions, seed)
        if self.backend is Runs.transformers:
            prepare_models(self.threads)
        if self.plan or out is None:
            show_plan(
                conditions,
                seed,
                accuracy=self.accuracy,
                effect=self.effect,
                price_in=self.price_in,
                price_out=self.price_out,
                calibrate=self.calibrate,
                workers=self.workers,
                json=self.json,
            )
            return False
        with shown("trials") as report:
            run(conditions, out, seed, report, self.made_engine(), command_line())
        return True


with_asking = options_from(asking=Asking)
"""Give a command the options of `Asking` after its own, and hand them over as its argument `asking`."""
