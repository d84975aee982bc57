"""The page of an explanation: sentences that say what was found and what was not, and nothing unescaped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from phasescope import BrokenRecordError, UsageError
from phasescope.explaining.result import HeadGate, Loss
from phasescope.reporting.explain_figures import gate_bars, loss_curve
from phasescope.reporting.explain_page import explain_page, explain_summary
from phasescope.reporting.figure import Figure

STRIDE = 4


def loss(unit: str, phases: list[float], p: float = 0.001) -> dict[str, Any]:
    """A unit's loss with a narrow band."""
    mean = sum(phases) / len(phases)
    return {
        "unit": unit,
        "outcome": "accuracy",
        "mean": {"value": mean, "low": mean - 0.02, "high": mean + 0.02},
        "mean_p": 0.001,
        "mean_p_holm": 0.002,
        "phase": phases,
        "low": [value - 0.05 for value in phases],
        "high": [value + 0.05 for value in phases],
        "index": 0.6,
        "phase_sd": {"value": 0.2, "low": 0.1, "high": 0.3},
        "p": p,
        "p_holm": p,
        "null_95": 0.1,
    }


def explained(**changes: Any) -> dict[str, Any]:
    """An explanation of a made-up model with two heads in its last layer."""
    gate = {
        "mean": [0.1, 0.2, 0.3, 0.4],
        "low": [0.09, 0.19, 0.29, 0.39],
        "high": [0.11, 0.21, 0.31, 0.41],
        "prior": [0.25] * 4,
        "entropy": 0.8,
        "entropy_of_mean": 0.9,
        "recurrence": 0.7,
        "prior_distance": 0.1,
        "prior_correlation": None,
        "windows": 10,
    }
    return {
        "schema": 1,
        "condition": "model",
        "run": "run",
        "model": "model",
        "protocol": "in_sequence",
        "coordinate": "source",
        "stride": STRIDE,
        "blocks": 200,
        "contexts": 13,
        "layouts": 24,
        "facts": {
            "mode": "mean",
            "branch": "all",
            "where": "last",
            "seed": 0,
            "draws": 2000,
            "reference_prompts": 64,
            "verified": {"identity_edit": 0.0, "zero_edit": 9.1},
            "class": "X",
        },
        "units": ["L1.H0", "L1.H1"],
        "curve": {
            "rate": [0.9, 0.8, 0.5, 0.1],
            "low": [0.88, 0.78, 0.48, 0.08],
            "high": [0.92, 0.82, 0.52, 0.12],
            "phase_sd": {"value": 0.3, "low": 0.28, "high": 0.32},
            "flat": False,
            "contexts": 25,
        },
        "losses": {"accuracy": [loss("L1.H0", [0.6, 0.5, 0.1, -0.02]), loss("L1.H1", [0.1] * 4, p=0.6)]},
        "contrasts": {
            "L1.H0": {"estimate": {"value": 0.5, "low": 0.4, "high": 0.6}, "phases": [0, 1], "smallest": 0.1}
        },
        "gates": [
            {"layer": 0, "head": 0, **gate},
            {"layer": 1, "head": 0, **gate},
            {"layer": 1, "head": 1, **gate},
        ],
        "account": {
            "link": [[1, 1, 0.5, 0.2]],
            "keep": [[0.9, 0.8, 0.5, 0.4], [0.3, 0.3, 0.3, 0.3]],
            "heads": [[0.9, 0.8, 0.25, 0.08], [0.3, 0.3, 0.15, 0.06]],
            "phases": [0.9, 0.8, 0.25, 0.08],
            "kept": [[True, True, False, False], [False] * 4],
            "unkept": [2, 3],
            "weakest": 3,
            "measured_weakest": [3, 2],
            "hit": True,
            "chance": 0.5,
            "agreement": 1.0,
        },
        "boundary": {
            "parted": [3],
            "closed": [2, 3],
            "contrasts": {
                "parted": None,
                "closed": {
                    "estimate": {"value": -0.55, "low": -0.6, "high": -0.5},
                    "phases": [2, 3],
                    "smallest": 0.1,
                },
            },
            "rolls": [
                {
                    "slots": 1,
                    "curve": [0.1, 0.9, 0.8, 0.5],
                    "mean": {"value": 0.0, "low": -0.1, "high": 0.1},
                    "won": {"value": 0.05, "low": -0.01, "high": 0.1},
                    "stays": 0.1,
                    "moves": 1.0,
                }
            ],
        },
        "findings": [],
        **changes,
    }


def page(folder: Path, explained: dict[str, Any]) -> str:
    """The page of an explanation."""
    path = folder / "explain.json"
    path.write_text(json.dumps(explained), encoding="utf-8")
    return explain_page(path).read_text(encoding="utf-8")


def test_the_page_says_what_was_found_and_draws_it(tmp_path):
    """One sentence per section, the contrast on top; map, curves, gates, account and rolls as figures."""
    html = page(tmp_path, explained())
    assert "50.0 points (40.0 to 60.0) more are lost at the phases that its gate prefers (0, 1)" in html
    assert (
        "no head keeps phase 2 and 3, and phase 3 is kept least; it is among the two measured weakest" in html
    )
    assert "does not win it back" in html
    assert "the contribution of L1.H0 falls unevenly" in html
    assert html.count("<figure") == 1 + 2 + 3 + 2 + 1
    assert "https:" not in html
    assert "not what is recalled" in html
    said = explain_summary(tmp_path / "explain.json")
    assert len(said.splitlines()) == 5


def axis(figure: Figure) -> dict[str | None, float]:
    """The vertical axis of a figure: its labels, and where they stand."""
    texts = ElementTree.fromstring(figure.svg).iter("text")
    return {one.text: float(one.attrib["y"]) - 4.5 for one in texts if one.get("text-anchor") == "end"}


def test_what_is_lost_has_an_axis_of_points_with_the_negative_ones():
    """A unit without which more is right is drawn below zero, not on it; losses of 20 points fill the plot."""
    drawn = loss_curve("k", Loss.model_validate(loss("L1.H0", [0.2, 0.1, 0.0, -0.15])), "source")
    at = axis(drawn)
    assert {"−20", "0", "20"} <= at.keys()
    assert not any("%" in (label or "") for label in at)
    dots = [float(one.attrib["cy"]) for one in ElementTree.fromstring(drawn.svg).iter("circle")]
    assert dots[2] == pytest.approx(at["0"], abs=0.01)
    assert at["0"] < dots[3] < at["−20"]
    assert drawn.columns[1] == "Lost, points"
    assert drawn.rows[3] == ("3", "−15.0", "−20.0", "−10.0")


def test_the_axis_of_a_gate_is_labelled_where_its_lines_are():
    """12.5 % is not called 12 %."""
    gate = HeadGate.model_validate({"layer": 0, "head": 0, **explained()["gates"][0], "prior": None})
    at = axis(gate_bars("k", gate))
    assert list(at) == ["0 %", "10 %", "20 %", "30 %", "40 %", "50 %"]
    narrow = gate.model_copy(update={"mean": (0.125,) * 4, "low": (0.12,) * 4, "high": (0.125,) * 4})
    assert list(axis(gate_bars("k", narrow)))[-1] == "12.5 %"


def test_where_no_specialisation_is_seen_the_power_is_given(tmp_path):
    """An interval that holds 0 is no contrast; what would have been found is said."""
    none = {
        "L1.H0": {"estimate": {"value": 0.01, "low": -0.02, "high": 0.04}, "phases": [1], "smallest": 0.044}
    }
    html = page(tmp_path, explained(contrasts=none))
    assert "No head is seen to serve the phases that its gate prefers" in html
    assert "a difference of 4.4 would have been found with 80 % power" in html.replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_names_are_escaped(tmp_path):
    """A run may be called anything."""
    evil = '<script>alert("x")</script>'
    html = page(
        tmp_path,
        explained(condition=evil, run=evil, losses={"accuracy": [loss(evil, [0.1] * 4)]}, contrasts={}),
    )
    assert "<script" not in html


def test_a_model_without_gates_has_a_page_too(tmp_path):
    """Heads alone."""
    bare = explained(
        gates=[],
        account=None,
        contrasts={},
        boundary={"parted": [], "closed": [], "contrasts": {"parted": None, "closed": None}, "rolls": []},
    )
    html = page(tmp_path, bare)
    assert "no gates that could be read" in html
    assert "The gates give no coverage score" in html
    assert len(explain_summary(tmp_path / "explain.json").splitlines()) == 1


def test_a_single_context_has_no_intervals(tmp_path):
    """Missing ends are dashes, not crashes."""
    alone = explained()
    for one in alone["losses"]["accuracy"]:
        one |= {"low": [None] * 4, "high": [None] * 4, "mean": {**one["mean"], "low": None, "high": None}}
    alone["contrasts"]["L1.H0"]["estimate"] |= {"low": None, "high": None}
    alone["boundary"]["rolls"][0]["won"] |= {"low": None, "high": None}
    assert "50.0 points more at the phases" in page(tmp_path, alone)


def test_what_is_no_explanation_is_refused(tmp_path):
    """A missing file and a wrong one, each in one line."""
    with pytest.raises(UsageError, match="cannot read"):
        explain_page(tmp_path / "explain.json")
    (tmp_path / "explain.json").write_text("[1]")
    with pytest.raises(BrokenRecordError, match="is damaged"):
        explain_page(tmp_path / "explain.json")
