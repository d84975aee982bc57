"""Several processes write the bytes of one, and lose nothing when one is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasescope import UsageError
from phasescope.backends import BackendSpec
from phasescope.checkpoints import zoo
from phasescope.protocols import InSequencePadding, PrefixPadding
from phasescope.running.processes import Processes, _placed
from phasescope.running.runner import Condition, run
from tests.running.mortal import Mortal

SMALL = {"pairs": 3, "contexts": 6, "residues": 4, "questions": 3}
MORTAL = "tests.running.mortal:Mortal"


def conditions(**settings: object) -> list[Condition]:
    """Two conditions of planted backends, made by whoever answers."""
    spec = BackendSpec(MORTAL, {"dies": {}, **settings})
    return [
        Condition("one", spec, PrefixPadding(**SMALL)),
        Condition("two", spec.with_settings(layout_sd=0.5), InSequencePadding(**SMALL)),
    ]


def files(folder: Path) -> dict[str, bytes]:
    """All files but the timings."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timings.jsonl"}


@pytest.mark.slow
def test_two_workers_write_the_bytes_of_one_process_though_both_are_killed(tmp_path: Path) -> None:
    """A batch whose worker is killed goes to a new one; progress counts every trial once."""
    run(conditions(), tmp_path / "one", seed=3)
    graves = tmp_path / "graves"
    graves.mkdir()
    mortal = {"folder": str(graves), "dies": {"c0001": 1, "c0004": 2}}
    reports: list[tuple[int, int]] = []
    run(conditions(**mortal), tmp_path / "two", 3, lambda *done: reports.append(done), Processes(2))
    assert files(tmp_path / "two") == files(tmp_path / "one")
    assert len(list(graves.iterdir())) == 3  # a condition's second death is the other condition's first
    assert reports == [(12 * batch, 144) for batch in range(13)]


def test_an_error_in_a_worker_ends_the_run_and_another_engine_finishes_it(tmp_path: Path) -> None:
    """What was answered before is in the log, to the byte."""
    run(conditions(), tmp_path / "whole", seed=3)
    broken = [conditions()[0], conditions(errs="c0003")[1]]
    with pytest.raises(ZeroDivisionError, match="at c0003") as caught:
        run(broken, tmp_path / "cut", 3, engine=Processes(2))
    assert "mortal.py" in "".join(caught.value.__notes__)
    kept = (tmp_path / "cut" / "observations.jsonl").read_bytes()
    assert kept.count(b"\n") == (6 + 3) * (12 + 1)
    run(conditions(), tmp_path / "cut", seed=3)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


@pytest.mark.slow
def test_a_worker_that_always_dies_is_one_line(tmp_path: Path) -> None:
    """With what killed it."""
    with pytest.raises(UsageError, match=r"3 workers died over the batch c0000 \(killed by signal 9\)"):
        run(conditions(folder=str(tmp_path), dies={"c0000": 9})[:1], tmp_path / "run", 3, engine=Processes(1))


def test_a_backend_that_cannot_be_made_is_the_error_of_one_process(tmp_path: Path) -> None:
    """The same line as without workers."""
    missing = Condition("x", BackendSpec("plantd"), PrefixPadding(**SMALL))
    with pytest.raises(UsageError, match="unknown backend 'plantd'"):
        run([missing], tmp_path, 3, engine=Processes(1))
    assert not list(tmp_path.iterdir())


def test_each_of_several_workers_gets_a_gpu_of_its_own() -> None:
    """`cuda` is a GPU per worker; a GPU that was named is kept."""
    spec = BackendSpec("transformers", {"device": "cuda"})
    assert [_placed(spec, place, 3).settings["device"] for place in range(3)] == [
        "cuda:0",
        "cuda:1",
        "cuda:2",
    ]
    assert _placed(spec, 0, 1) == spec
    named = spec.with_settings(device="cuda:5")
    assert _placed(named, 1, 2) == named


@pytest.mark.slow
def test_two_workers_with_a_model_each_write_the_bytes_of_one(tmp_path: Path) -> None:
    """The same weights on as many threads give the same last digits in another process."""
    name = zoo.names()[-1]
    settings = {"path": str(zoo.folder(name)), "name": name, "threads": 1}
    spec = BackendSpec("transformers", settings)
    asked = [Condition(name, spec, PrefixPadding(pairs=12, contexts=4))]
    run(asked, tmp_path / "one", seed=3)
    run(asked, tmp_path / "two", 3, engine=Processes(2))
    assert files(tmp_path / "two") == files(tmp_path / "one")


def test_the_mortal_backend_is_the_planted_one() -> None:
    """Its deaths change no answer."""
    assert Mortal(dies={}).describe()["planted"]["curve"] == (0.9, 0.6, 0.3, 0.75)
