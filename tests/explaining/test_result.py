"""The typed result of an explanation: read back as written, files of version 0.1 too, and nothing unchecked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phasescope import BrokenRecordError
from phasescope.explaining import ExplanationResult, read_explanation
from tests.reporting.test_explain_page import explained


def write(folder: Path, content: Any) -> Path:
    """An explain.json with this content."""
    path = folder / "explain.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_file_of_version_0_1_is_read(tmp_path):
    """An account is a coverage score, facts are settings, a finding may lack its null value."""
    finding = {"condition": "model", "name": "account", "method": "", "n_blocks": 1, "n_clusters": 1}
    result = read_explanation(write(tmp_path, explained(findings=[finding])))
    assert result.coverage_score is not None
    assert result.coverage_score.unkept == (2, 3)
    assert result.settings.kind == "X"
    assert (result.findings[0].name, result.findings[0].value) == ("coverage_score", None)


def test_what_is_written_is_read_back(tmp_path):
    """The same result, and from it the same bytes."""
    read_explanation(write(tmp_path, explained())).write(tmp_path / "first.json")
    result = read_explanation(tmp_path / "first.json")
    result.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "first.json").read_bytes()
    assert read_explanation(tmp_path / "again.json") == result


def test_a_result_is_short_to_look_at_and_a_table_of_losses(tmp_path):
    """One line in a notebook; one row per unit and phase."""
    result = read_explanation(write(tmp_path, explained()))
    assert len(repr(result)) < 200
    assert "stride 4, 2 units, 3 gates" in repr(result)
    table = result.to_arrow()
    assert table.column_names == ["unit", "outcome", "phase", "lost", "low", "high"]
    assert table.num_rows == 2 * 4
    assert table.to_pylist()[1] == {
        "unit": "L1.H0",
        "outcome": "accuracy",
        "phase": 1,
        "lost": 0.5,
        "low": pytest.approx(0.45),
        "high": pytest.approx(0.55),
    }


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "null",
        '{"schema": 1',
        "[" * 100_000,
        explained(stride=10**9),
        explained(stride="four"),
        explained(stride=8),
        explained(curve={**explained()["curve"], "rate": [0.1, None, "x", {}]}),
        explained(curve={**explained()["curve"], "contexts": 10**400}),
        explained(units="L1.H0"),
        explained(gates=[{**explained()["gates"][0], "low": []}]),
        explained(gates=[{**explained()["gates"][0], "entropy": 10**400}]),
        explained(findings=[[]]),
        explained(findings=[{"name": []}]),
        explained(losses={"accuracy": [{}]}),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, content):
    """Missing fields, wrong types, endless numbers, curves of another length."""
    with pytest.raises(BrokenRecordError) as refused:
        read_explanation(write(tmp_path, content))
    assert "\n" not in str(refused.value)


def test_a_result_has_a_json_schema():
    """So that other tools can read it."""
    assert "coverage_score" in ExplanationResult.model_json_schema()["properties"]
