"""`import phasescope as ps`: the verbs and nouns, from Python."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

import phasescope as ps
import phasescope.models.qwen3  # registers our models
from phasescope.checkpoints import zoo

VERBS = ("audit", "check", "explain", "inspect", "measure", "mitigate", "plan", "report", "sweep", "train")
SMALL = {"contexts": 3, "pairs": 12}


def test_every_name_is_there_and_listed() -> None:
    """Verbs are functions, whatever was imported before."""
    for module in ("phasescope.auditing.readers", "phasescope.verbs.audit", "phasescope.verbs.measure"):
        import_module(module)
    assert {*VERBS, "Run", "Condition", "Finding", "WindowGrid", "read_run"} <= {*dir(ps)}
    for name in VERBS:
        assert callable(getattr(ps, name)), name
        assert getattr(ps, name).__module__.startswith("phasescope.verbs.")
    with pytest.raises(AttributeError, match="no attribute 'mesure'"):
        ps.mesure  # noqa: B018


@pytest.mark.parametrize(
    "first", ["phasescope.verbs.check", "phasescope.checking", "phasescope.reporting.build"]
)
def test_rooms_and_verbs_go_together_in_any_order(first: str) -> None:
    """No verb is hidden by a module of its name."""
    script = (
        f"import {first}\nimport phasescope as ps\nimport phasescope.auditing.readers, phasescope.verbs.report\n"
        "import sys\nassert callable(ps.audit) and callable(ps.check) and callable(ps.report) and callable(ps.plan)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_run_from_names_then_its_report(tmp_path: Path) -> None:
    """What is measured is what the command measures, and the same call goes on from it."""
    run = ps.measure(["full-1kv", "w8s8-1kv"], protocol="in_sequence", out=tmp_path / "run", **SMALL)
    assert isinstance(run, ps.Run)
    assert [*run.observations] == ["full-1kv", "w8s8-1kv"]
    assert len(repr(run)) < 1000
    ps.measure(["full-1kv", "w8s8-1kv"], protocol="in_sequence", out=tmp_path / "run", **SMALL)
    assert ps.report(tmp_path / "run", draws=50).page == tmp_path / "run" / "report.html"


def test_a_live_model_answers_as_its_folder_does(tmp_path: Path) -> None:
    """With the vocabulary that its card names."""
    card = zoo.card("w8s8-1kv")
    model = AutoModelForCausalLM.from_pretrained(zoo.folder("w8s8-1kv"))
    live = ps.measure(
        model, out=tmp_path / "live", loading={"vocabulary": card.vocabulary, "name": "w8s8-1kv"}, **SMALL
    )
    named = ps.measure("w8s8-1kv", out=tmp_path / "named", **SMALL)
    scores = [[o.score for o in run.observations["w8s8-1kv"]] for run in (live, named)]
    assert scores[0] == scores[1]
    with pytest.raises(ps.UsageError, match="int is no model"):
        ps.measure(3, out=tmp_path / "no")
    with pytest.raises(ps.UsageError, match="give tokenizer=FOLDER or vocabulary="):
        ps.measure(model, out=tmp_path / "no")


def test_a_wrong_folder_is_refused_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed and the names of conditions show it."""
    ps.measure("full-1kv", out=tmp_path, **SMALL)
    monkeypatch.setattr("phasescope.backends.transformers.load.load_model", None)
    with pytest.raises(ps.UsageError, match="seed = 0, this run 1"):
        ps.measure("full-1kv", out=tmp_path, seed=1, **SMALL)
    with pytest.raises(ps.UsageError, match="conditions = "):
        ps.measure("w8s8-1kv", out=tmp_path, **SMALL)


def test_plans_audits_and_inspections_are_results(tmp_path: Path) -> None:
    """Nothing is written."""
    planned = ps.plan("full-1kv", budget=0, **SMALL)
    assert planned.conditions[0].contexts == 3
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"position": 8 * n}) + "\n" for n in range(40)))
    assert "1 of 4 phases" in ps.audit(tmp_path / "p.jsonl", strides=[4]).verdict
    assert ps.inspect("w8s8-1kv").strides == (8,)
    assert [path.name for path in tmp_path.iterdir()] == ["p.jsonl"]


def test_results_become_tables(tmp_path: Path) -> None:
    """A run has a row per observation, an audit one per stride and phase; both are short in a notebook."""
    run = ps.measure("w8s8-1kv", protocol="prefix", out=tmp_path / "run", **SMALL)
    assert run.to_arrow().num_rows == sum(map(len, run.observations.values()))
    path = tmp_path / "b.csv"
    path.write_text("position\n" + "\n".join(str(4 * n) for n in range(40)))
    found = ps.audit(path, strides=[4], position="position")
    assert found.to_arrow().column("samples").to_pylist() == [40, 0, 0, 0]
    assert max(len(repr(run)), len(repr(found))) < 400
