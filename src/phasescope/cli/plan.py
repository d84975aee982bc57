"""The options and the table of `--plan`, for every command that asks models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ..files import dump_json, write_atomic
from ..plan import ArmPlan, Prices, RunPlan, plan_run
from ..running.runner import Arm
from ..statistics.power import Guess
from .progress import bar

PANEL = "Plan"
PlanOption = Annotated[
    bool, typer.Option("--plan", help="Say what the run will see and cost, and stop.", rich_help_panel=PANEL)
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Also write the plan to a file.", rich_help_panel=PANEL)
]
AccuracyOption = Annotated[
    float, typer.Option(help="The accuracy you expect; 0.5 is the most cautious.", rich_help_panel=PANEL)
]
EffectOption = Annotated[
    float, typer.Option(help="Phase SD, in points, whose power is stated.", rich_help_panel=PANEL)
]
PriceInOption = Annotated[
    float, typer.Option(help="Price of a million prompt tokens.", rich_help_panel=PANEL)
]
PriceOutOption = Annotated[
    float, typer.Option(help="Price of a million generated tokens.", rich_help_panel=PANEL)
]
CalibrateOption = Annotated[
    float,
    typer.Option(
        help="Seconds of calibration per arm; 0 asks nothing, and predicts no time.", rich_help_panel=PANEL
    ),
]


def show_plan(
    arms: Sequence[Arm],
    seed: int,
    *,
    accuracy: float,
    effect: float,
    price_in: float,
    price_out: float,
    calibrate: float,
    workers: int = 1,
    json: Path | None = None,
) -> RunPlan:
    """Work out the plan, print it, and write it where that is asked."""
    guess, prices = Guess(accuracy=accuracy), Prices(price_in, price_out)
    with bar() as progress:
        task = progress.add_task("plan", total=None, note="")
        plan = plan_run(
            arms,
            seed,
            guess=guess,
            effect=effect / 100,
            prices=prices,
            budget=calibrate,
            workers=workers,
            report=lambda doing: progress.update(task, description=doing),
        )
        progress.update(task, description="planned", completed=1, total=1)
    console = Console(highlight=False)
    Console(highlight=False, width=max(console.width, 100)).print(_table(plan))
    for line in _lines(plan):
        print(line)
    if json is not None:
        write_atomic(json, dump_json(plan.as_json()))
        print(f"wrote {json}")
    return plan


def _table(plan: RunPlan) -> Table:
    table = Table(title="plan: nothing has been written", title_justify="left", box=SIMPLE)
    table.add_column("arm", overflow="fold")
    for column in ("contexts", "layouts", "probes", "longest", "read", "generated", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for arm in plan.arms:
        counts = (arm.contexts, arm.layouts, arm.trials, arm.longest, arm.read_tokens, arm.new_tokens)
        table.add_row(arm.name, *(f"{count:,}" for count in counts), _duration(arm.seconds))
    return table


def _lines(plan: RunPlan) -> list[str]:
    """The plan in words."""
    guess = plan.guess
    lines = [_power(arm) for arm in plan.arms]
    lines.append(
        f"  (at an accuracy of {100 * guess.accuracy:g} %, with SDs of {guess.block_sd:g}, {guess.cluster_sd:g} and "
        f"{guess.layout_sd:g} logits over questions, contexts and layouts)"
    )
    lines += list(dict.fromkeys(_memory(arm) for arm in plan.arms if arm.memory.total is not None))
    total = sum(arm.trials for arm in plan.arms)
    paces = [arm.pace for arm in plan.arms if arm.pace is not None]
    calibrated = (
        f"from a calibration of {_duration(sum(pace.seconds for pace in paces))} that asked "
        f"{sum(pace.trials for pace in paces):,} probes ({sum(pace.tokens for pace in paces):,} tokens)"
        if paces
        else "without a calibration"
    )
    lines.append(
        f"in all {total:,} probes, {sum(arm.read_tokens for arm in plan.arms):,} prompt tokens read, at most "
        f"{sum(arm.new_tokens for arm in plan.arms):,} generated"
    )
    lines.append(
        f"time {_duration(plan.seconds)}, {calibrated}; loading takes {_duration(plan.load_seconds)}"
    )
    if plan.cost:
        lines.append(f"cost {plan.cost:,.2f}, the calibration's included")
    return lines + [f"warning: {warning}" for warning in plan.warnings]


def _power(arm: ArmPlan) -> str:
    if arm.smallest_effect is None or arm.power is None:
        return f"{arm.name}: too few contexts or layouts to say which phase SD could be missed"
    return (
        f"{arm.name}, folded by {arm.fold}: could miss a phase SD below {100 * arm.smallest_effect:.1f} points (found "
        f"with 80 % power); {100 * arm.effect:g} points are found with {100 * arm.power:.0f} %"
    )


def _memory(arm: ArmPlan) -> str:
    memory: Any = arm.memory
    return (
        f"{arm.name.partition('/')[0]}: weights {_bytes(memory.weights)}, KV cache of one prompt at most "
        f"{_bytes(memory.cache)}, of all that are held at once at most {_bytes(memory.peak)}"
    )


def _bytes(count: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{count:.3g} {units[0]}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
