"""Trackers of accelerate are told losses, step sizes and looks."""

import pytest
from accelerate import tracking as accelerates

from phasescope.errors import MissingExtraError, UnknownNameError
from phasescope.training import Training, train
from phasescope.verbs import watch
from phasescope.verbs.watch import watcher
from tests.builders.corpora import made_corpus, mixed


@pytest.mark.filterwarnings("ignore")  # tensorboard's own
def test_tensorboard_is_told_losses_step_sizes_and_looks(tmp_path, monkeypatch):
    """Every step and every look, with the weights of a run without a tracker."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setattr(watch, "WATCH_CONTEXTS", 3)
    corpus = made_corpus(tmp_path / "corpus")
    settings = Training(**mixed(corpus, steps=4, warmup=1, decay=0.5, balance=0.1))
    end = train(settings, tmp_path / "without", corpus=corpus)
    look = {"watch": watcher(settings, corpus), "watch_every": 4}
    train(settings, tmp_path / "with", corpus=corpus, tracker="tensorboard", **look)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without"))
    assert one == two
    events = EventAccumulator(str(tmp_path / "with" / "tracker" / "phasescope")).Reload()
    told = {
        tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    assert [step for step, _ in told["loss"]] == [1, 2, 3, 4]
    assert told["text_loss"][-1][1] == pytest.approx(end.text_loss)
    assert told["imbalance"][-1][1] == pytest.approx(end.imbalance, abs=1e-5)
    assert [size for _, size in told["lr_matrices"]] == pytest.approx([0.005, 0.01, 0.01, 0.005])
    assert [step for step, _ in told["look/held_out"]] == [4]
    assert {f"look/phases.{phase}" for phase in range(4)} < set(told)
    assert {"accuracy", "look/mean_accuracy", "look/phase_sd"} < set(told)
    assert not any(tag.startswith("look/gates") for tag in told)


def test_an_unknown_tracker_and_a_missing_package_are_one_line(tmp_path, monkeypatch):
    """With what there is, or what to install; nothing is written."""
    with pytest.raises(UnknownNameError, match=r"unknown tracker .tensorbord.; known: .*tensorboard"):
        train(Training(steps=1), tmp_path / "run", tracker="tensorbord")
    monkeypatch.setattr(accelerates, "_available_trackers", [])
    with pytest.raises(MissingExtraError, match="tracker comet_ml needs comet-ml; install it with: pip"):
        train(Training(steps=1), tmp_path / "run", tracker="comet_ml")
    assert not (tmp_path / "run").exists()
