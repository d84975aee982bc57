"""From a measured run to explain.json: the same bytes after a kill, and refusals in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phasescope import BrokenRecordError, UsageError
from phasescope.backends.planted import Planted
from phasescope.explaining.explanation import Explanation
from phasescope.explaining.settings import ExplainSettings
from phasescope.grid import WindowGrid
from phasescope.logs import ObservationLog, read_log
from phasescope.protocols import InSequencePadding
from phasescope.reporting.explain_page import explain_page, explain_summary
from phasescope.running.runner import Condition, run
from phasescope.runs import read_run
from phasescope.verbs.measure import measure

MODEL = "w8s8-1kv"
SMALL = {"pairs": 16, "contexts": 4}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and its control, measured over four contexts."""
    folder = tmp_path_factory.mktemp("run")
    torch.set_num_threads(1)
    measure([MODEL, "full-1kv"], protocol="in_sequence", out=folder, **SMALL)
    return folder


def explain(folder: Path, out: Path, **settings: Any) -> dict[str, Any]:
    """Explain two contexts."""
    chosen = {"blocks": 32, "draws": 100, "rolls": False, **settings}
    Explanation(folder, ExplainSettings(**chosen), out).run()
    found: dict[str, Any] = json.loads((out / "explain.json").read_text(encoding="utf-8"))
    return found


def test_the_retrieving_head_carries_the_strong_phases(measured, tmp_path):
    """Without layer 1's head the strong phases are lost and the weak ones are not; layer 0's matters little."""
    found = explain(measured, tmp_path / "e", rolls=True)
    losses = {loss["unit"]: loss for loss in found["losses"]["accuracy"]}
    strong, weak = losses["L1.H0"]["phase"][:6], losses["L1.H0"]["phase"][6:]
    assert min(strong) > max(weak) + 0.2
    assert losses["L0.H0"]["mean"]["value"] < 0.15
    contrast = found["contrasts"]["L1.H0"]
    assert contrast["phases"] == [0, 1, 2, 3, 4, 5]
    assert contrast["estimate"]["value"] > 0.3
    assert found["coverage_score"]["unkept"] == [6, 7]
    assert found["coverage_score"]["hit"]
    assert found["boundary"]["closed"] == [6, 7]
    assert [roll["slots"] for roll in found["boundary"]["rolls"]] == [1, 2, 3, 4, 5, 6, 7]
    dip = np.array(found["boundary"]["rolls"][3]["curve"])  # the bias is lowest at slots 0 and 7
    assert dip[[2, 3]].max() < dip[[0, 1, 4, 5]].min()
    names = {finding["name"] for finding in found["findings"]}
    assert names >= {
        "mean_loss",
        "loss_at_phase",
        "specialisation",
        "head_contrast",
        "coverage_score",
        "boundary_won",
    }
    page = explain_page(tmp_path / "e" / "explain.json").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "").replace("https://", "http").replace(
        "http://www.w3", ""
    )
    assert "more are lost at the phases that its gate prefers" in explain_summary(
        tmp_path / "e" / "explain.json"
    )


def test_an_interrupted_explanation_goes_on_to_the_same_bytes(measured, tmp_path):
    """Half the log, and a line cut in two, are completed to what an uninterrupted run writes."""
    explain(measured, tmp_path / "whole")
    explain(measured, tmp_path / "cut")
    log = tmp_path / "cut" / "observations.jsonl"
    before = log.read_bytes()
    log.write_bytes(before[: len(before) // 2])
    (tmp_path / "cut" / "explain.json").unlink()
    explain(measured, tmp_path / "cut")
    for name in ("observations.jsonl", "explain.json", "settings.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_untouched_condition_answers_as_the_run_did(measured, tmp_path):
    """Trial by trial, the same log-probabilities as were measured."""
    explain(measured, tmp_path / "e")
    there = {o.trial: o for o in read_run(measured).observations[MODEL]}
    own = [line for line in read_log(tmp_path / "e" / "observations.jsonl") if line.condition == "none"]
    assert len(own) == 32 * 24
    for line in own:
        assert line.logprob == pytest.approx(there[line.trial].logprob, abs=1e-4)
        assert line.score == there[line.trial].score


def test_a_control_is_explained_without_gates(measured, tmp_path):
    """Heads alone; no coverage score, no boundary; the page says so."""
    found = explain(measured, tmp_path / "e", condition="full-1kv", mode="zero")
    assert found["gates"] == []
    assert found["coverage_score"] is None
    assert found["boundary"]["rolls"] == []
    assert found["stride"] == 8
    page = explain_page(tmp_path / "e" / "explain.json").read_text(encoding="utf-8")
    assert "no gates that could be read" in page


def test_branches_and_heads_together(measured, tmp_path):
    """Entries alone carry the recall of far facts; joined heads are one unit more."""
    found = explain(measured, tmp_path / "e", branch="entries", mode="resample")
    losses = {loss["unit"]: loss["mean"]["value"] for loss in found["losses"]["accuracy"]}
    assert losses["L1.H0 entries"] > 0.15
    both = explain(measured, tmp_path / "t", together=("L0.H0+L1.H0",))
    assert both["units"] == ["L0.H0", "L1.H0", "L0.H0+L1.H0"]


def test_a_multiple_of_the_stride_may_be_folded_by(measured, tmp_path):
    """Twice the phases, each as strong as its twin, and the boundary twice."""
    found = explain(measured, tmp_path / "e", fold=24, rolls=True)
    assert found["boundary"]["closed"] == [6, 7, 14, 15, 22, 23]
    assert found["coverage_score"]["unkept"] == [6, 7, 14, 15, 22, 23]
    assert len(found["curve"]["rate"]) == 24


def test_cost_is_known_before_it_starts(measured):
    """Tokens that are read once, and last tokens that are read again."""
    cost = Explanation(measured, ExplainSettings(blocks=32)).cost()
    assert (cost.units, cost.rolls, cost.contexts, cost.blocks, cost.layouts) == (2, 7, 2, 32, 24)
    assert cost.last_tokens == 2 * 32 * 24
    assert cost.seconds is not None
    assert "32 blocks at 24 layouts" in cost.words()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"condition": "nobody"}, r"no such condition; it has w8s8-1kv, full-1kv"),
        ({"blocks": 500}, r"has answered 64 whole blocks"),
        ({"blocks": 0}, "at least 1"),
        ({"model": "nowhere"}, r"neither a folder nor one of"),
        ({"model": "w4s4-1kv"}, r"other weights than"),
        ({"together": ("L0.H0+L7.H0",)}, r"no head 'L7.H0'"),
        ({"condition": "full-1kv", "branch": "entries"}, r"no entries beside its tokens"),
        ({"fold": 1}, r"at least 2"),
        ({"fold": 7}, r"repeat every 8 tokens"),
        ({"device": "abacus"}, "abacus"),
    ],
)
def test_what_cannot_be_explained_is_refused(measured, settings, said):
    """What was given, what is allowed."""
    with pytest.raises(UsageError, match=said):
        Explanation(measured, ExplainSettings.checked(**settings))


def test_another_explanation_in_the_same_folder_is_refused(measured, tmp_path):
    """Settings are compared, not overwritten."""
    explain(measured, tmp_path / "e")
    with pytest.raises(UsageError, match="mode = 'mean', this explanation 'zero'"):
        explain(measured, tmp_path / "e", mode="zero")


def test_an_explanation_of_version_0_1_goes_on_and_a_damaged_one_is_refused(measured, tmp_path):
    """Its settings name arms; what is no object of settings is one line."""
    found = explain(measured, tmp_path / "e")
    path = tmp_path / "e" / "settings.json"
    old = json.loads(path.read_text())
    old |= {"arm": old.pop("condition"), "arms": old.pop("conditions")}
    path.write_text(json.dumps(old))
    assert explain(measured, tmp_path / "e") == found
    path.write_text("[1]")
    with pytest.raises(BrokenRecordError, match="does not hold the settings"):
        explain(measured, tmp_path / "e")


def test_a_run_that_is_planted_or_half_done_or_moved_is_refused(measured, tmp_path):
    """Only local models can be taken apart, and only where they are, and what they answered."""
    with pytest.raises(UsageError, match=r"run\.json"):
        Explanation(tmp_path / "nothing", ExplainSettings())
    planted = Planted(grid=WindowGrid(8, 8), curve=[0.5] * 8)
    run([Condition("planted", planted, InSequencePadding(pairs=8, contexts=1))], tmp_path / "planted", seed=0)
    with pytest.raises(UsageError, match="measure a model of transformers"):
        Explanation(tmp_path / "planted", ExplainSettings())
    shutil.copytree(measured, tmp_path / "moved", ignore=shutil.ignore_patterns("explain"))
    described = json.loads((tmp_path / "moved" / "run.json").read_text())
    for condition in described["conditions"]:
        condition["backend"] |= {"path": "/nowhere", "model": "lost"}
    (tmp_path / "moved" / "run.json").write_text(json.dumps(described))
    with pytest.raises(UsageError, match="say where it is with --model"):
        Explanation(tmp_path / "moved", ExplainSettings())
    assert Explanation(tmp_path / "moved", ExplainSettings(model=MODEL)).backend.name == "lost"
    (tmp_path / "moved" / "observations.jsonl").write_text("")
    with pytest.raises(UsageError, match="has answered no trial"):
        Explanation(tmp_path / "moved", ExplainSettings(model=MODEL))


def test_a_model_that_answers_otherwise_than_the_run_is_refused(measured, tmp_path):
    """The log is held against the model before anything is concluded."""
    shutil.copytree(measured, tmp_path / "run", ignore=shutil.ignore_patterns("explain"))
    log = tmp_path / "run" / "observations.jsonl"
    lines = [line.model_copy(update={"logprob": line.logprob - 0.5}) for line in read_log(log)]
    log.unlink()
    ObservationLog(log).append(lines)
    with pytest.raises(UsageError, match="does not answer as in"):
        explain(tmp_path / "run", tmp_path / "e")
