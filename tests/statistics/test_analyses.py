"""The analysis of a run as a typed result: rows for arrow and pandas, short words, and the files it is written to."""

from __future__ import annotations

import builtins
import json

import pytest

from phasescope.backends import Planted
from phasescope.errors import BrokenRecordError, MissingExtraError
from phasescope.grid import WindowGrid
from phasescope.protocols import PrefixPadding
from phasescope.running.runner import Condition, run
from phasescope.statistics.analyses import analyse_conditions, read_findings
from phasescope.statistics.conditions import read_conditions

HOSTILE = "<b>'x'"


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    """Two conditions, of which one has an effect."""
    out = tmp_path_factory.mktemp("runs") / "run"
    curves = {"s4": [0.9, 0.3, 0.5, 0.7], HOSTILE: [0.6] * 4}
    conditions = [
        Condition(name, Planted(grid=WindowGrid(4, 4), curve=curve), PrefixPadding(pairs=12, contexts=8))
        for name, curve in curves.items()
    ]
    run(conditions, out, 0)
    return analyse_conditions(*read_conditions([out]), draws=100)


def test_every_condition_has_its_judgement_and_profile(analysis):
    """The sensitive one by its own stride."""
    found = analysis["s4"]
    assert (found.judgement.state, found.judgement.period) == ("sensitive", 4)
    assert found.profile.sensitive
    assert found.condition.depth_spread()[0] < 2


def test_findings_are_rows_for_arrow_and_their_details_are_json(analysis):
    """One row each, whole numbers as such."""
    table = analysis.to_arrow()
    assert table.num_rows == len(analysis.findings)
    assert str(table.schema.field("stride").type) == "int64"
    assert str(table.schema.field("value").type) == "double"
    assert all(isinstance(json.loads(text), dict) for text in table["detail"].to_pylist())
    assert str(analysis.observations().schema.field("answer").type) == "int64"


def test_without_pandas_the_line_says_what_to_install(analysis, monkeypatch):
    """Or a frame, where it is installed."""
    known = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("pandas"):
            raise ImportError(name)
        return known(name, *arguments, **more)

    monkeypatch.setattr("importlib.import_module", lambda name: without(name))
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        analysis.to_pandas()


def test_results_are_short_in_a_notebook_and_names_are_escaped(analysis):
    """A line of text, and a table."""
    assert len(repr(analysis)) < 200
    assert "s4: sensitive" in repr(analysis)
    assert "<b>" not in analysis._repr_html_()
    assert all(len(repr(finding)) < 200 for finding in analysis.findings)


@pytest.mark.parametrize(
    "content", ["[]", "[[]]", '{"findings": [1]}', '{"schema": 1}', '{"schema": 9, "findings": []}']
)
def test_damaged_findings_are_one_line(content, tmp_path):
    """With the file's name and the field."""
    (tmp_path / "findings.json").write_text(content, encoding="utf-8")
    with pytest.raises(BrokenRecordError, match=r"findings\.json is damaged") as caught:
        read_findings(tmp_path / "findings.json")
    assert "\n" not in str(caught.value)
