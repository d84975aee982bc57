"""The run's own numbers, and the commands that lead to the same report."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from phasescope.reporting.method import describe
from phasescope.runs import RunDescription
from tests.builders.findings import analysis_of
from tests.descriptions import described

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
