"""What a terminal prints."""

from __future__ import annotations

import pytest

from phasescope.errors import BrokenRecordError, UsageError
from phasescope.reporting import summary
from phasescope.statistics.analyses import read_findings, write_findings


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
