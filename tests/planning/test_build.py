"""A plan's numbers against the run itself."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from phasescope import UsageError, WindowGrid
from phasescope.backends import BackendSpec, Planted
from phasescope.checkpoints import zoo
from phasescope.files import dump_json
from phasescope.planning import Prices, plan_run
from phasescope.protocols import InSequencePadding, PrefixPadding, QueryPadding
from phasescope.running.runner import Condition, run
from phasescope.statistics.power import Guess


def planted(**settings: object) -> BackendSpec:
    return BackendSpec("planted", {"grid": WindowGrid(4, 4), "curve": (0.9, 0.6, 0.3, 0.75), **settings})


def spent(out: Path) -> dict[str, int]:
    """Prompt tokens that each condition of a run has read."""
    tokens: dict[str, int] = {}
    for line in (out / "timings.jsonl").read_text().splitlines():
        row = json.loads(line)
        tokens[row["condition"]] = tokens.get(row["condition"], 0) + row["tokens"]
    return tokens


def test_the_predicted_tokens_are_the_spent_ones_of_one_prompt_per_trial(tmp_path: Path) -> None:
    """For every padding, with contexts that are no multiple of the residues, on a seed of its own."""
    sizes = {"pairs": 7, "contexts": 7, "residues": 5}
    kinds: list[Callable[..., PrefixPadding]] = [PrefixPadding, InSequencePadding, QueryPadding]
    conditions = [Condition(kind.__name__, planted(), kind(**sizes)) for kind in kinds]
    plan = plan_run(conditions, 11)
    run(conditions, tmp_path, 11)
    assert {condition.name: condition.read_tokens for condition in plan.conditions} == spent(tmp_path)


@pytest.mark.slow
def test_the_predicted_tokens_are_the_spent_ones_of_a_shared_prefill(tmp_path: Path) -> None:
    """On two zoo models, one of them compressed."""
    conditions = [
        Condition(
            name,
            BackendSpec("transformers", {"path": str(zoo.folder(name)), "name": name, "threads": 1}),
            protocol,
        )
        for name, protocol in [
            (zoo.names()[0], PrefixPadding(pairs=9, contexts=5, residues=7)),
            (zoo.names()[-1], QueryPadding(pairs=9, contexts=4, residues=3)),
        ]
    ]
    plan = plan_run(conditions, 2, budget=0.5)
    run(conditions, tmp_path, 2)
    assert {condition.name: condition.read_tokens for condition in plan.conditions} == spent(tmp_path)
    assert all(condition.memory.total for condition in plan.conditions)
    assert plan.seconds is not None


def test_without_a_calibration_nothing_is_asked_and_no_time_is_predicted() -> None:
    """A budget of nothing spends nothing."""
    backend = Planted(grid=WindowGrid(4, 4), curve=(0.5,) * 4)
    plan = plan_run([Condition("a", backend, PrefixPadding(pairs=5, contexts=6))], 0, budget=0)
    assert backend.tokens == 0
    assert (plan.seconds, plan.conditions[0].pace, plan.conditions[0].seconds) == (None, None, None)
    assert plan.cost == 0


def test_money_is_tokens_times_prices_with_the_calibrations_own() -> None:
    """Per million; generated tokens at their own price."""
    backend = Planted(grid=WindowGrid(4, 4), curve=(0.5,) * 4)
    (condition,) = (
        plan := plan_run(
            [Condition("a", backend, PrefixPadding(pairs=5, contexts=6))], 0, prices=Prices(3, 15)
        )
    ).conditions
    assert condition.cost == pytest.approx((3 * condition.read_tokens + 15 * condition.new_tokens) / 1e6)
    assert condition.pace is not None
    assert plan.cost - condition.cost == pytest.approx(
        (3 * backend.tokens + 15 * condition.pace.trials) / 1e6
    )


def test_more_contexts_see_smaller_effects_and_few_are_warned_about() -> None:
    """25 contexts are where intervals were shown to hold; below four nothing can be said."""
    plans = {
        contexts: plan_run(
            [Condition("a", planted(), PrefixPadding(pairs=12, contexts=contexts))], 0, budget=0, effect=0.02
        )
        for contexts in (2, 12, 25, 100)
    }
    smallest = [plans[contexts].conditions[0].smallest_effect for contexts in (12, 25, 100)]
    assert plans[2].conditions[0].smallest_effect is None
    assert smallest[0] > smallest[1] > smallest[2] > 0  # type: ignore[operator]
    assert smallest[1] / smallest[2] == pytest.approx(2, rel=0.15)  # type: ignore[operator]
    assert any(
        "12 contexts: intervals and tests hold from 25 on" in warning for warning in plans[12].warnings
    )
    assert any("underpowered for a phase SD of 2 points: a" in warning for warning in plans[12].warnings)
    assert not any("contexts" in warning for warning in plans[25].warnings)


def test_a_condition_is_folded_by_its_own_grid_and_a_control_by_the_others() -> None:
    """As the report compares them; without any grid, by its layouts."""

    @dataclasses.dataclass(kw_only=True)
    class Flat(Planted):
        def describe(self) -> dict[str, object]:
            return {**super().describe(), "grids": []}

    flat = Flat(grid=WindowGrid(4, 4), curve=(0.5,) * 4)
    protocol = PrefixPadding(pairs=12, contexts=4)
    wide = planted(grid=WindowGrid(8, 8), curve=(0.5,) * 8)
    both = plan_run(
        [Condition("a", planted(), protocol), Condition("b", wide, protocol), Condition("c", flat, protocol)],
        0,
        budget=0,
    )
    assert [condition.fold for condition in both.conditions] == [4, 8, 8]
    assert plan_run([Condition("c", flat, protocol)], 0, budget=0).conditions[0].fold == 24


def test_a_plan_is_json_and_the_guess_is_in_it() -> None:
    """Everything that the table says, and what it rests on."""
    condition = Condition("a", planted(), PrefixPadding(pairs=5, contexts=6))
    plan = plan_run([condition], 0, guess=Guess(accuracy=0.9), workers=3)
    read = json.loads(dump_json(plan.as_json()))
    assert read["guess"]["accuracy"] == 0.9
    assert read["conditions"][0]["read_tokens"] == plan.conditions[0].read_tokens
    assert read["warnings"] == plan.warnings


@pytest.mark.parametrize(
    "wrong",
    [{"effect": 0.0}, {"effect": 1.5}, {"budget": -1.0}, {"budget": float("nan")}, {"effect": float("nan")}],
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    """One line."""
    with pytest.raises(UsageError, match="effect"):
        plan_run([Condition("a", planted(), PrefixPadding(pairs=5, contexts=6))], 0, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("prices", [(-1.0, 0.0), (0.0, float("inf")), (float("nan"), 0.0)])
def test_impossible_prices_are_refused(prices: tuple[float, float]) -> None:
    """One line."""
    with pytest.raises(UsageError, match="give 0 or more"):
        Prices(*prices)
