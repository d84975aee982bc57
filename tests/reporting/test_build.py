"""From run folders to files."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest

from phasescope.backends import Planted
from phasescope.errors import BrokenRecordError, UsageError
from phasescope.grid import WindowGrid
from phasescope.logs import ObservationLog, read_log
from phasescope.protocols import PrefixPadding
from phasescope.records import Finding, Observation
from phasescope.reporting import build_report, summary
from phasescope.running.runner import Condition, run
from phasescope.statistics.analyses import read_findings, write_findings

HOSTILE = '<script>alert("1")</script>'
FILES = ("findings.json", "observations.parquet", "report.html")
CURVES = {"full": [0.8], "s4": [0.9, 0.3, 0.5, 0.7], HOSTILE: [0.6] * 8}


def measure(out, names, seed=0):
    """A run of planted conditions: 12 contexts of 12 questions."""
    protocol = PrefixPadding(pairs=12, contexts=12)
    conditions = []
    for name in names:
        grid = WindowGrid(len(CURVES[name]), len(CURVES[name]))
        planted = Planted(grid=grid, curve=CURVES[name], block_sd=0.5, layout_sd=0.3, seed=seed)
        conditions.append(Condition(name, planted, protocol))
    run(conditions, out, seed)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run with its report."""
    out = measure(tmp_path_factory.mktemp("runs") / "demo", CURVES)
    build_report([out], draws=200)
    return out


@pytest.fixture(scope="module")
def records(folder):
    """The objects of findings.json."""
    return json.loads((folder / "findings.json").read_text(encoding="utf-8"))


def test_the_same_run_gives_the_same_bytes(folder, tmp_path):
    """A copy of the run, reported elsewhere, gives three equal files."""
    again = tmp_path / folder.name
    shutil.copytree(folder, again, ignore=shutil.ignore_patterns(*FILES))
    build_report([again], draws=200)
    for name in FILES:
        assert (again / name).read_bytes() == (folder / name).read_bytes(), name


def test_findings_json_has_what_others_read(records):
    """A schema, and per estimate the fields that are promised; a period always says what was expected."""
    assert records["schema"] == 1
    always = {"condition", "name", "value", "low", "high", "p_value", "method", "n_blocks", "n_clusters"}
    names = {"mean_accuracy", "worst_residue", "phase_sd", "split_half_gap", "raw_gap", "period"}
    for condition in CURVES:
        own = [record for record in records["findings"] if record["condition"] == condition]
        assert names <= {record["name"] for record in own}
        assert all(always <= record.keys() for record in own)
    expected = {r["condition"]: r["expected"] for r in records["findings"] if r["name"] == "period"}
    assert expected == {"full": None, "s4": 4, HOSTILE: 8}
    for record in records["findings"]:
        Finding.model_validate(record)


def test_tests_are_corrected_over_the_conditions_of_the_report(records):
    """Three conditions: each test carries its corrected p, never below its own."""
    compared = [r for r in records["findings"] if r["name"] in ("phase_test", "paired_test", "period")]
    assert {r["detail"]["conditions_compared"] for r in compared} == {3}
    assert all(r["detail"]["p_holm"] >= r["p_value"] for r in compared)
    assert any(r["detail"]["p_holm"] > r["p_value"] for r in compared)


def test_a_planted_period_is_found_and_named(folder, records):
    """The condition of stride 4 has period 4 in the data and in the page's first sentence."""
    found = {
        r["condition"]: r["value"]
        for r in records["findings"]
        if r["name"] == "period" and r.get("outcome") == "accuracy"
    }
    assert found == {"full": None, "s4": 4, HOSTILE: None}
    assert "s4: recall repeats every 4 tokens, its own stride" in (folder / "report.html").read_text("utf-8")


def test_a_control_has_rates_at_every_stride_it_stands_beside(records):
    """Folded by 8 for its own findings, and by 4 for the figure of the condition of stride 4."""
    strides = [
        r["stride"]
        for r in records["findings"]
        if r["condition"] == "full" and r["name"] == "phase_rate" and r["outcome"] == "accuracy"
    ]
    assert strides == [8] * 8 + [4] * 4
    assert {
        r["stride"] for r in records["findings"] if r["condition"] == "full" and r["name"] == "phase_sd"
    } == {8}


def test_the_parquet_holds_every_observation(folder):
    """Row by row what observations.jsonl has."""
    rows = pq.read_table(folder / "observations.parquet").to_pylist()
    assert [Observation(**row) for row in rows] == list(read_log(folder / "observations.jsonl"))


def test_names_are_escaped(folder):
    """A condition called like a script stays text in the page and a plain string in the JSON."""
    assert HOSTILE not in (folder / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert" in (folder / "report.html").read_text(encoding="utf-8")


def test_several_runs_stand_in_one_report_with_a_run_column(folder, tmp_path):
    """Conditions of the same name keep their run's, and nothing is written into the runs themselves."""
    other = measure(tmp_path / "other", ["full", "s4"], seed=1)
    page = build_report([folder, other], tmp_path / "both", draws=200).page
    assert page == tmp_path / "both" / "report.html"
    table = pq.read_table(tmp_path / "both" / "observations.parquet")
    assert table.column_names[0] == "run"
    assert set(table["run"].to_pylist()) == {"demo", "other"}
    found = json.loads((tmp_path / "both" / "findings.json").read_text(encoding="utf-8"))["findings"]
    assert {r["condition"] for r in found} == {"demo: full", "demo: s4", HOSTILE, "other: full", "other: s4"}
    assert not (other / "report.html").exists()


def test_a_condition_has_the_same_numbers_alone_and_in_company(folder, tmp_path, records):
    """But for the correction over conditions, a condition's findings don't depend on the conditions beside it."""

    def bare(findings):
        kept = [r for r in findings if r["condition"] == "s4"]
        return [
            {
                **r,
                "detail": {
                    k: v for k, v in r["detail"].items() if k not in ("p_holm", "conditions_compared")
                },
            }
            for r in kept
        ]

    alone = measure(tmp_path / "alone", ["s4"])
    build_report([alone], draws=200)
    found = json.loads((alone / "findings.json").read_text(encoding="utf-8"))["findings"]
    assert bare(found) == bare(records["findings"])


def test_a_report_shows_itself_in_a_notebook(folder, tmp_path):
    """Its words and its figures, without markup from names; short as a line of text."""
    report = build_report([folder], tmp_path, draws=20)
    shown = report._repr_html_()
    assert shown.count("<figure>") == len(report.figures) == 1 + 3 * 3
    assert HOSTILE not in shown
    assert "Condition" in report.text
    assert len(repr(report)) < 300


def test_several_runs_need_a_folder_of_their_own(folder):
    """A common report belongs to none of the runs."""
    with pytest.raises(UsageError, match="2 runs and no folder"):
        build_report([folder, folder])


def test_a_run_cut_short_is_reported_with_a_warning(folder, tmp_path):
    """Whole contexts of an interrupted run are analysed, and the page says what is missing."""
    part = tmp_path / "part"
    part.mkdir()
    shutil.copy(folder / "run.json", part)
    lines = list(read_log(folder / "observations.jsonl"))
    ObservationLog(part / "observations.jsonl").append(lines[: len(lines) // 2])
    page = build_report([part], draws=200).page.read_text(encoding="utf-8")
    assert "Not finished: s4 has answered 1,728 of 3,456 prompts." in page


def test_a_run_without_observations_has_a_page(folder, tmp_path):
    """Killed before its first batch, a run still gives a report that says that nothing was measured."""
    shutil.copy(folder / "run.json", tmp_path)
    (tmp_path / "observations.jsonl").touch()
    page = build_report([tmp_path]).page.read_text(encoding="utf-8")
    assert "Nothing was measured." in page


def test_a_damaged_run_leaves_the_old_report_alone(folder, tmp_path):
    """A broken line is named, and no file of an earlier report is touched."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    with (copy / "observations.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(BrokenRecordError, match=r"line 10405: condition is missing"):
        build_report([copy])
    for name in FILES:
        assert (copy / name).read_bytes() == (folder / name).read_bytes()


def test_the_summary_has_controls_first_and_ends_with_the_verdict(tmp_path, sensitive, control):
    """A line of columns, a line per condition, an empty line, the sentence; nothing a plain terminal can't show."""
    write_findings(tmp_path / "findings.json", [*sensitive(), *control()])
    lines = summary(tmp_path).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["Condition", "full", "w8s8"]
    assert "control, flat" in lines[1]
    assert "phase-sensitive  57.5 %  4.0 % at 7" in lines[2]
    assert lines[3] == ""
    assert lines[4].startswith("w8s8 is phase-sensitive: recall repeats every 8 tokens")
    assert lines[0].index("Verdict") == lines[2].index("phase-sensitive")


def test_findings_are_read_as_they_were_written(tmp_path, sensitive):
    """Nothing is lost between a finding and its JSON."""
    write_findings(tmp_path / "f.json", sensitive())
    assert read_findings(tmp_path / "f.json") == sensitive()


def test_no_findings_and_broken_findings_are_one_line_each(tmp_path):
    """A missing file and a file of something else."""
    with pytest.raises(UsageError, match=r"cannot read .*findings\.json"):
        summary(tmp_path)
    (tmp_path / "findings.json").write_text('{"findings": [1]}', encoding="utf-8")
    with pytest.raises(BrokenRecordError, match="damaged: findings"):
        summary(tmp_path)
