"""The run's own numbers, what was lost, and the commands that lead to the same report."""

from __future__ import annotations

import shlex
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
from phasescope.reporting.method import describe, loss_rows, loss_warnings
from phasescope.running.runner import Condition as Asked
from phasescope.running.runner import run
from phasescope.runs import RunDescription
from phasescope.statistics.conditions import Condition
from tests.builders.findings import analysis_of
from tests.descriptions import described

SHIFTED = "position drifted: more tokens read than planned"
SETTINGS = {"pairs": 64, "contexts": 4, "residues": 24, "questions": None, "margin": 12}


def asked(name="w8s8", *, model, protocol="prefix", kind="transformers", settings=SETTINGS, trials=288):
    """A condition as run.json describes it."""
    backend = {"backend": kind, "model": model, "device": "cpu", "threads": 2}
    return described(name, backend=backend, name=protocol, settings=settings, trials=trials)


def run_of(*conditions, command=None):
    """A run of those conditions."""
    versions = {"numpy": "2.0", "torch": None}
    return RunDescription(schema=2, seed=3, versions=versions, conditions=conditions, command=command)


@pytest.fixture
def two(make_condition, sensitive, control):
    """A control and a condition, measured as the command line does."""
    conditions = [make_condition("full", control=True), make_condition("w8s8")]
    runs = {"demo": run_of(asked("full", model="full"), asked(model="w8s8"))}
    return describe(analysis_of(conditions, [*control(), *sensitive()], runs, 2000), Path("anywhere/demo"))


def test_several_runs_share_one_report_command(make_condition, sensitive):
    """Each run has its measure; the report names all folders and its own."""
    runs = {name: run_of(asked(model="w8s8")) for name in ("one", "two")}
    conditions = [make_condition(f"{name}: w8s8", run=name) for name in runs]
    method = describe(analysis_of(conditions, [], runs, 10), Path("out/both"))
    assert method.commands[2] == "phasescope report runs/one runs/two --out runs/both --seed 0 --draws 10"


def test_the_table_counts_what_was_measured(two):
    """All that was asked is counted; depth (of a condition without balance) and strides are method."""
    assert two.rows[0] == (
        "full",
        "prefix",
        "4",
        "12",
        "24",
        "288",
        "100",
        "19.00, 11.31",
        "none",
        "2–4, 8",
        "15, 16",
    )
    assert two.rows[1][8] == "8"


def test_protocols_are_described_in_their_own_words_with_their_settings(two):
    """The protocol's documentation and every setting that was given."""
    (paragraph,) = two.protocols
    assert "padding in front moves all records together" in paragraph
    assert "pairs 64, contexts 4, residues 24, margin 12" in paragraph


def test_every_protocol_has_a_paragraph(make_condition):
    """A model under two protocols; the same protocol is not described twice."""
    conditions = [asked(f"m/{p}", model="m", protocol=p) for p in ("prefix", "in_sequence")]
    made = [make_condition(one.name) for one in conditions]
    assert len(describe(analysis_of(made, [], {"d": run_of(*conditions)}, 10), Path("d")).protocols) == 2


def test_a_protocol_that_is_not_installed_is_described_by_its_settings(make_condition):
    """A report of somebody else's run needs none of their code."""
    runs = {"demo": run_of(asked(model="m", protocol="elsewhere"))}
    method = describe(analysis_of([make_condition("w8s8")], [], runs, 10), Path("demo"))
    assert method.protocols[0].startswith("Protocol elsewhere, which moves the source. Settings: pairs 64")


def test_missing_trials_are_counted(make_condition):
    """288 of 576 prompts is a warning; all of them is none."""
    for trials, warnings in ((288, 0), (576, 1)):
        runs = {"demo": run_of(asked(model="m", trials=trials))}
        method = describe(analysis_of([make_condition("w8s8")], [], runs, 10), Path("demo"))
        assert len(method.unfinished) == warnings
    assert method.unfinished == ["Not finished: w8s8 has answered 288 of 576 prompts."]


def test_versions_say_what_is_not_installed(two):
    """Null in run.json is given in words, and each condition's backend in full."""
    assert ("torch", "not installed") in two.versions
    assert dict(two.versions)["w8s8"] == "backend planted, grids width 8 stride 8 shift 0, model w8s8"


def test_a_run_that_knows_its_command_is_repeated_by_it(make_condition):
    """Nothing is guessed where the user's own words were kept."""
    command = "phasescope measure m --limit 3 --out here"
    runs = {"d": run_of(asked(model="m"), command=command)}
    method = describe(analysis_of([make_condition("w8s8")], [], runs, 10), Path("d"))
    assert method.commands[0] == command


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (1, "# runs/demo: this run does not record its command; it was written by version 0.1"),
        (2, "# runs/demo: this run was measured from Python, under the conditions in its run.json"),
    ],
)
def test_no_command_is_made_up_for_a_run_that_records_none(make_condition, sensitive, schema, said):
    """Settings that are no options would make it another run; the report has a line of its own."""
    runs = {"demo": run_of(asked(model="m")).model_copy(update={"format": schema})}
    method = describe(analysis_of([make_condition("w8s8")], sensitive(), runs, 2000), Path("anywhere/demo"))
    assert method.commands == [said, "phasescope report runs/demo --seed 0 --draws 2000"]


def test_commands_quote_what_a_shell_would_read(make_condition, sensitive):
    """A run folder called like a command stays one word."""
    runs = {"x; rm -rf ~": run_of(asked(model="m"))}
    method = describe(analysis_of([make_condition("w8s8")], sensitive(), runs, 10), Path("a b"))
    assert shlex.split(method.commands[1])[2] == "runs/x; rm -rf ~"


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
