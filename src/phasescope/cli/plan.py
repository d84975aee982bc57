"""The options and the table of `--plan`, for every command that asks models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.table import Table

from ..files import dump_json, write_atomic
from ..planning import ConditionPlan, Prices, RunPlan, plan_run
from ..running.runner import Condition
from ..statistics.power import Guess
from ..wording import size_words, time_words
from .progress import bar
from .terminal import Terminal, say

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
        help="Seconds of calibration per condition; 0 asks nothing, and predicts no time.",
        rich_help_panel=PANEL,
    ),
]


def show_plan(
    conditions: Sequence[Condition],
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
            conditions,
            seed,
            guess=guess,
            effect=effect / 100,
            prices=prices,
            budget=calibrate,
            workers=workers,
            report=lambda doing: progress.update(task, description=doing),
        )
        progress.update(task, description="planned", completed=1, total=1)
    console = Terminal()
    Terminal(width=max(console.width, 100)).print(_table(plan))
    for line in _lines(plan):
        say(line)
    if json is not None:
        write_atomic(json, dump_json(plan.as_json()))
        say(f"wrote {json}")
    return plan


def _table(plan: RunPlan) -> Table:
    table = Table(title="plan: nothing has been written", title_justify="left", box=SIMPLE)
    table.add_column("condition", overflow="fold")
    for column in ("contexts", "layouts", "probes", "longest", "read", "generated", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for condition in plan.conditions:
        counts = (
            condition.contexts,
            condition.layouts,
            condition.trials,
            condition.longest,
            condition.read_tokens,
            condition.new_tokens,
        )
        table.add_row(condition.name, *(f"{count:,}" for count in counts), time_words(condition.seconds))
    return table


def _lines(plan: RunPlan) -> list[str]:
    """The plan in words."""
    guess = plan.guess
    lines = [_power(condition) for condition in plan.conditions]
    lines.append(
        f"  (at an accuracy of {100 * guess.accuracy:g} %, with SDs of {guess.block_sd:g}, {guess.cluster_sd:g} and "
        f"{guess.layout_sd:g} logits over questions, contexts and layouts)"
    )
    lines += list(
        dict.fromkeys(
            _memory(condition) for condition in plan.conditions if condition.memory.total is not None
        )
    )
    total = sum(condition.trials for condition in plan.conditions)
    paces = [condition.pace for condition in plan.conditions if condition.pace is not None]
    calibrated = (
        f"from a calibration of {time_words(sum(pace.seconds for pace in paces))} that asked "
        f"{sum(pace.trials for pace in paces):,} probes ({sum(pace.tokens for pace in paces):,} tokens)"
        if paces
        else "without a calibration"
    )
    lines.append(
        f"in all {total:,} probes, {sum(each.read_tokens for each in plan.conditions):,} prompt tokens read, at most "
        f"{sum(each.new_tokens for each in plan.conditions):,} generated"
    )
    lines.append(
        f"time {time_words(plan.seconds)}, {calibrated}; loading takes {time_words(plan.load_seconds)}"
    )
    if plan.cost:
        lines.append(f"cost {plan.cost:,.2f}, the calibration's included")
    return lines + [f"warning: {warning}" for warning in plan.warnings]


def _power(condition: ConditionPlan) -> str:
    if condition.smallest_effect is None or condition.power is None:
        return f"{condition.name}: too few contexts or layouts to say which phase SD could be missed"
    return (
        f"{condition.name}, folded by {condition.fold}: could miss a phase SD below "
        f"{100 * condition.smallest_effect:.1f} points (found "
        f"with 80 % power); {100 * condition.effect:g} points are found with {100 * condition.power:.0f} %"
    )


def _memory(condition: ConditionPlan) -> str:
    memory: Any = condition.memory
    return (
        f"{condition.name.partition('/')[0]}: weights {size_words(memory.weights)}, KV cache of one prompt at most "
        f"{size_words(memory.cache)}, of all that are held at once at most {size_words(memory.peak)}"
    )
