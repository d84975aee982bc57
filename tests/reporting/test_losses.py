"""What was lost is said: how much, why, and where it unbalances the design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from phasescope import UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.observations import Observations
from phasescope.protocols import PrefixPadding
from phasescope.records import Dropped, NoReply, Reply, Trial
from phasescope.reporting import build_report, summary
from phasescope.reporting.method import loss_rows, loss_warnings
from phasescope.running.runner import Condition as Asked
from phasescope.running.runner import run
from phasescope.statistics.conditions import Condition

SHIFTED = "position drifted: more tokens read than planned"


class Losing(Planted):
    """A planted backend that loses the trials that `lost` names, with its reason."""

    lost: Callable[[Trial], str | None]

    def answer(self, trials: list[Trial]) -> list[Reply | NoReply]:  # type: ignore[override]
        """Answer, or give the reason."""
        pairs = zip(trials, super().answer(trials), strict=True)
        return [NoReply(reason) if (reason := self.lost(trial)) else reply for trial, reply in pairs]


def losing(lost: Callable[[Trial], str | None]) -> Losing:
    """A flat model that loses these trials."""
    model = Losing(grid=WindowGrid(4, 4), curve=(0.8,) * 4)
    model.lost = lost
    return model


def measured(out: Path, lost: Callable[[Trial], str | None], **settings: int) -> Path:
    """A run folder with losses."""
    protocol = PrefixPadding(**{"pairs": 4, "contexts": 6, "residues": 8, **settings})
    run([Asked("w4s4", losing(lost), protocol)], out, seed=1)
    return out


def dropped(condition: Condition, number: int, layout: int, reason: str) -> Dropped:
    """A lost trial."""
    return Dropped(
        condition=condition.name, trial=str(number), cluster="c0", block="b", layout=layout, dropped=reason
    )


def test_a_condition_without_losses_is_not_spoken_of(make_condition: Callable[..., Condition]) -> None:
    """No warning, no row."""
    assert not list(loss_warnings([make_condition("a")]))
    assert loss_rows([make_condition("a")]) == []


def test_losses_are_counted_by_reason_and_layouts_that_are_gone_are_named(
    make_condition: Callable[..., Condition],
) -> None:
    """The commonest reason first; a layout that lost less than half is not named."""
    condition = make_condition("a")
    gone = [dropped(condition, number, 5, SHIFTED) for number in range(40)]
    some = [dropped(condition, number, 6, "two\x00choices") for number in range(3)]
    condition = replace(
        condition,
        dropped=[*gone, *some],
        observations=Observations(o for o in condition.observations if o.layout != 5),
    )
    (said,) = loss_warnings([condition])
    assert said == (
        f"Dropped: a lost 43 of 319 prompts: {SHIFTED} (40), two\N{REPLACEMENT CHARACTER}choices (3). The layouts are "
        "no longer balanced: layout 5 lost 40 of 40."
    )
    assert [row[1:] for row in loss_rows([condition])] == [
        (SHIFTED, "40", "1"),
        ("two\N{REPLACEMENT CHARACTER}choices", "3", "1"),
    ]


def test_the_report_and_the_summary_say_what_was_lost(tmp_path: Path) -> None:
    """At the top, in the method, in findings.json and in the terminal; the run counts as finished."""
    folder = measured(tmp_path, lambda trial: SHIFTED if trial.layout == 5 else None)
    page = build_report([folder], draws=50).page.read_text()
    assert f"Dropped: w4s4 lost 24 of 192 prompts: {SHIFTED} (24)." in page
    assert "layout 5 lost 24 of 24" in page
    assert "<h3>Dropped prompts</h3>" in page
    assert "Not finished" not in page
    assert f"w4s4 lost 24 prompts: {SHIFTED} (24)" in summary(folder)


def test_a_report_without_losses_has_no_section_about_them(tmp_path: Path) -> None:
    """Nothing to say, nothing said."""
    page = build_report([measured(tmp_path, lambda trial: None)], draws=50).page.read_text()
    assert "Dropped" not in page


def test_blocks_that_lost_a_layout_are_left_out_of_the_analysis(tmp_path: Path) -> None:
    """The others are compared in all layouts; the finding says how many are missing."""
    folder = measured(
        tmp_path, lambda trial: SHIFTED if trial.block == "c0000/k001" and trial.layout == 2 else None
    )
    build_report([folder], draws=50)
    found = (folder / "findings.json").read_text()
    assert '"dropped_blocks": 1' in found
    assert '"dropped_trials": 1' in found


def test_where_no_block_is_whole_the_line_says_that_prompts_were_dropped(tmp_path: Path) -> None:
    """And why."""
    folder = measured(tmp_path, lambda trial: None if trial.layout == 0 else SHIFTED)
    with pytest.raises(
        UsageError, match=r"no block asked once .*; 168 prompts were dropped: position drifted"
    ):
        build_report([folder], draws=50)


def test_a_run_of_which_everything_was_dropped_is_one_line(tmp_path: Path) -> None:
    """When it is measured, and again when it is to be reported."""
    with pytest.raises(
        UsageError, match=r"none of the 48 trials of w4s4 could be observed: .*\(48\)"
    ) as caught:
        measured(tmp_path, lambda trial: SHIFTED, contexts=6, residues=2)
    assert "\n" not in str(caught.value)
    with pytest.raises(
        UsageError, match="nothing to analyse, every prompt was dropped: w4s4: position drifted"
    ):
        build_report([tmp_path], draws=50)
