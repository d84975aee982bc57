"""The command line as a user meets it."""

import json
from importlib.metadata import version

import pytest

from phasescope import UsageError, cli
from phasescope.checkpoints import zoo
from phasescope.cli import commands
from tests.cli.in_process import phasescope

SMALL = ["--pairs", "12", "--contexts", "3", "--threads", "1"]


def test_list_names_the_zoo_and_the_catalogs_without_torch(base_install):
    """A base install can still say what there is."""
    said = base_install("list")
    for name in [*zoo.names(), "scalar_gate", "in_sequence", "planted"]:
        assert name in said


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (MemoryError(), 2, "this machine has too little memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 2, "too little memory"),
        (UsageError("no place at ftp://me:hunter2@host/x"), 2, "no place at ftp://(hidden)@host/x"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("nobody thought\nof it"), 70, "RuntimeError: nobody thought of it; this is a bug"),
    ],
)
def test_what_nobody_foresaw_is_one_line_and_accuses_no_engine(monkeypatch, capsys, raised, code, said):
    """Exit code 1 is the verdict "engine fault" of `check`; a bug of ours has another."""

    def fails(*_, **__):
        raise raised

    monkeypatch.setattr(commands, "app", fails)
    assert cli.run(["list"]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_version_is_the_packages_own():
    """As every command line says it."""
    assert phasescope("--version").strip() == f"phasescope {version('phasescope')}"


def test_measure_then_report_then_report_side_by_side(tmp_path, base_install):
    """Two runs, a page each, and one page for both; the report needs no torch."""
    control, model = zoo.names()[0], zoo.names()[-1]
    phasescope("measure", model, control, "--out", "one", *SMALL, cwd=tmp_path)
    phasescope("measure", model, "--protocol", "query", "--out", "two", *SMALL, cwd=tmp_path)
    said = base_install("report", "one", "--draws", "200", cwd=tmp_path)
    assert "one/report.html" in said
    findings = json.loads((tmp_path / "one" / "findings.json").read_text())["findings"]
    assert {finding["condition"] for finding in findings} == {model, control}
    phasescope("report", "one", "two", "--out", "both", "--draws", "200", cwd=tmp_path)
    assert (tmp_path / "both" / "report.html").stat().st_size > 10_000


def test_measuring_again_changes_nothing_and_other_settings_are_refused(tmp_path):
    """The same command resumes a finished run; a different one does not overwrite it."""
    model = zoo.names()[0]
    phasescope("measure", model, "--out", "run", *SMALL, cwd=tmp_path)
    before = (tmp_path / "run" / "observations.jsonl").read_bytes()
    phasescope("measure", model, "--out", "run", *SMALL, cwd=tmp_path)
    said = phasescope("measure", model, "--out", "run", *SMALL, "--seed", "1", code=2, cwd=tmp_path)
    assert "seed" in said
    assert (tmp_path / "run" / "observations.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["measure", "no-such-model", "--out", "x"], "no-such-model"),
        (["measure", "{model}", "--out", "x", "--protocol", "prefx"], "did you mean 'prefix'"),
        (["measure", "{model}", "--out", "x", "--pairs", "0"], "--pairs"),
        (["measure", "{model}", "--out", "x", "--pairs", "500"], "500 pairs"),
        (["measure", "{model}", "--out", "x", "--threads", "0"], "threads"),
        (["measure", "{model}", "--out", "x", "--device", "abacus"], "abacus"),
        (["measure", "{model}", "--out", "x", "--seed", "-1"], "seed"),
        (["measure", "{model}"], "--out"),
        (["report", "nowhere"], "nowhere"),
        (["report"], "runs"),
        (["train", "--out", "x", "--compressor", "scaler", "--steps", "1"], "scalar_gate"),
        (
            ["train", "--out", "x", "--compressor", "uniform", "--width", "0", "--steps", "1"],
            "width is 0; give at least 1",
        ),
        (["train", "--out", "x", "--steps", "0"], "steps"),
        (["train", "--out", "x", "--heads", "3", "--kv-heads", "2", "--steps", "1"], "heads"),
        (["demo", "--sed", "1"], "--sed"),
        (["dmo"], "dmo"),
        (["train", "--out", "x", "--width", "8"], "--width says how to compress"),
        (
            [
                "train",
                "--compressor",
                "csa",
                "--width",
                "8",
                "--stride",
                "4",
                "--shift",
                "4",
                "--tail",
                "2",
                "--binding",
                "--kv-heads",
                "1",
                "--out",
                "t",
            ],
            "unread tokens",
        ),
        (["train", "--compressor", "uniform", "--setting", "topk=x", "--out", "t"], "is not NAME=NUMBER"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, arguments, said):
    """What was given, what is allowed; nothing written."""
    model = zoo.names()[0]
    error = phasescope(*(word.format(model=model) for word in arguments), code=2, cwd=tmp_path)
    assert said in error
    assert error.splitlines()[-1].startswith("phasescope: ")
    assert not (tmp_path / "x" / "observations.jsonl").exists()


def test_a_command_without_its_extra_says_which_one_to_install(tmp_path, base_install):
    """In a base install, measuring and training name the extra."""
    for command in (["measure", "any", "--out", "x"], ["train", "--out", "x"], ["demo"]):
        said = base_install(*command, code=2, cwd=tmp_path)
        assert "pip install '.[models]'" in said


def test_the_old_name_of_a_condition_is_still_understood(tmp_path):
    """As in version 0.1, and in no help."""
    error = phasescope("explain", str(tmp_path), "--arm", "x", code=2)
    assert "No such option" not in error
    assert "--arm" not in phasescope("explain", "-h")


def test_help_ends_with_examples_and_has_panels():
    """What a command is called with, as it is typed."""
    said = phasescope("measure", "-h")
    assert said.index("Scale-out") < said.index("Examples") < said.index("phasescope measure full-1kv")


def test_a_run_keeps_the_command_that_made_it(tmp_path):
    """Without what is in no option."""
    phasescope("measure", "full-1kv", "-o", "run", *SMALL, cwd=tmp_path)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["command"] == f"phasescope measure full-1kv -o run {' '.join(SMALL)}"
