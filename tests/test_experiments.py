"""What the command line names, called from Python."""

import json

import pytest

from phasescope import UsageError, zoo
from phasescope.experiments import checkpoint, measure, trained_pairs
from phasescope.runner import read_run


def test_a_model_is_a_zoo_name_or_a_folder(tmp_path):
    """Anything else is an error that lists the zoo."""
    name = zoo.names()[0]
    assert checkpoint(name) == (name, zoo.folder(name))
    assert checkpoint(str(tmp_path)) == (tmp_path.name, tmp_path)
    with pytest.raises(UsageError, match=name):
        checkpoint("nothing-of-the-kind")


def test_a_protocol_asks_for_as_many_records_as_the_least_trained_model_knows(tmp_path):
    """By default the cards decide; an explicit number wins."""
    name = zoo.names()[0]
    assert trained_pairs(zoo.folder(name)) == zoo.card(name)["pairs"]
    assert trained_pairs(tmp_path) == 64
    measure([name], ["prefix"], tmp_path / "cards", seed=0, contexts=1)
    measure([name], ["prefix"], tmp_path / "own", seed=0, contexts=1, pairs=5)
    pairs = [
        json.loads((tmp_path / run / "run.json").read_text())["arms"][0]["protocol"]["settings"]["pairs"]
        for run in ("cards", "own")
    ]
    assert pairs == [zoo.card(name)["pairs"], 5]


def test_arms_of_one_protocol_see_the_same_trials(tmp_path):
    """Models are compared on the very same prompts, trial by trial."""
    one, two = zoo.names()[:2]
    measure([one, two], ["prefix", "in_sequence"], tmp_path, seed=3, contexts=2, pairs=6)
    run = read_run(tmp_path)
    assert list(run.observations) == [f"{m}/{p}" for m in (one, two) for p in ("prefix", "in_sequence")]
    for protocol in ("prefix", "in_sequence"):
        first, second = ([o.trial for o in run.observations[f"{model}/{protocol}"]] for model in (one, two))
        assert first == second
