"""What the command line names, called from Python."""

import json

import pytest
from benchmarks.made_tokenizer import made_tokenizer, made_words

from phasescope import UsageError, verbs
from phasescope.checkpoints import smollm2 as natural
from phasescope.checkpoints import zoo
from phasescope.checkpoints.resolve import Checkpoint, resolve
from phasescope.runs import read_run
from phasescope.verbs import local
from phasescope.verbs import measure as measured


def measure(models, protocols, out, *, tokenizer=None, **settings):
    """Local models by their names."""
    measured(models, protocol=protocols, out=out, loading={"tokenizer": tokenizer}, **settings)


def test_a_model_is_a_zoo_name_or_a_folder(tmp_path):
    """Anything else is an error that lists the zoo."""
    name = zoo.names()[0]
    assert resolve(name) == Checkpoint(name, zoo.folder(name))
    assert resolve(str(tmp_path)) == Checkpoint(tmp_path.name, tmp_path)
    with pytest.raises(UsageError, match=name):
        resolve("nothing-of-the-kind")


def test_a_protocol_asks_for_as_many_records_as_the_least_trained_model_knows(tmp_path):
    """By default the cards decide; an explicit number wins."""
    name = zoo.names()[0]
    assert local([str(tmp_path)])[0].pairs is None
    measure([name], ["prefix"], tmp_path / "cards", seed=0, contexts=1)
    measure([name], ["prefix"], tmp_path / "own", seed=0, contexts=1, pairs=5)
    pairs = [
        json.loads((tmp_path / run / "run.json").read_text())["conditions"][0]["protocol"]["settings"][
            "pairs"
        ]
        for run in ("cards", "own")
    ]
    assert pairs == [zoo.card(name).pairs, 5]


def test_conditions_of_one_protocol_see_the_same_trials(tmp_path):
    """Models are compared on the very same prompts, trial by trial."""
    one, two = zoo.names(demo=True)[:2]
    measure([one, two], ["prefix", "in_sequence"], tmp_path, seed=3, contexts=2, pairs=6)
    run = read_run(tmp_path)
    assert list(run.observations) == [f"{m}/{p}" for m in (one, two) for p in ("prefix", "in_sequence")]
    for protocol in ("prefix", "in_sequence"):
        first, second = ([o.trial for o in run.observations[f"{model}/{protocol}"]] for model in (one, two))
        assert first == second


@pytest.fixture
def dense(tmp_path):
    """A checkpoint of an untrained dense model with a tokenizer of its own."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = made_tokenizer(made_words(800))
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=tokenizer.size, max_position_embeddings=512, **sizes)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "dense")
    tokenizer.fast.save(str(tmp_path / "dense" / "tokenizer.json"))
    (tmp_path / "dense" / "chat_template.jinja").write_text(tokenizer.template)
    return tmp_path / "dense"


SMALL = {"seed": 0, "contexts": 2, "questions": 2}


def test_needles_are_asked_with_the_models_own_tokenizer(tmp_path, dense):
    """A protocol of text needs no vocabulary; prompts and pairs fit the model unless told otherwise."""
    measure([str(dense)], ["needle"], tmp_path / "run", **SMALL)
    (condition,) = json.loads((tmp_path / "run" / "run.json").read_text())["conditions"]
    settings = condition["protocol"]["settings"]
    assert (settings["prompt_tokens"], settings["pairs"]) == (480, 60)
    assert settings["tokenizer"]["name"] == "dense"
    observations = read_run(tmp_path / "run").observations["dense"]
    assert len(observations) == condition["protocol"]["plan"]["trials"] == 2 * 8 * 2
    assert all(o.text is not None and o.logprob is not None for o in observations)
    spent = [
        json.loads(line)["tokens"] for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()
    ]
    assert sum(spent) == condition["protocol"]["plan"]["prefix_tokens"]


def test_each_protocol_takes_the_settings_that_it_has(tmp_path, dense):
    """What none of them knows is refused, with what they know."""
    name = zoo.names()[0]
    measure([name], ["prefix"], tmp_path / "zoo", **SMALL, pairs=5, groups=None, chat=None)
    with pytest.raises(UsageError, match="chat is no setting of prefix, which know: contexts, margin"):
        measure([name], ["prefix"], tmp_path / "no", **SMALL, chat=True)
    with pytest.raises(UsageError, match="residues is no setting of needle"):
        measure([str(dense)], ["needle"], tmp_path / "no", **SMALL, residues=24)
    measure([str(dense)], ["needle"], tmp_path / "chat", **SMALL, prompt_tokens=300, pairs=9, chat=True)
    settings = json.loads((tmp_path / "chat" / "run.json").read_text())["conditions"][0]["protocol"][
        "settings"
    ]
    assert (settings["chat"], settings["pairs"], settings["prompt_tokens"]) == (True, 9, 300)


def test_a_prompt_longer_than_the_model_reads_is_refused(tmp_path, dense):
    """By its config; a nested one and one that says nothing are read too."""
    with pytest.raises(UsageError, match="dense reads at most 512 tokens"):
        measure([str(dense)], ["needle"], tmp_path / "run", **SMALL, prompt_tokens=513)
    assert local([str(dense)])[0].longest_prompt == 512
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 77}}')
    assert local([str(tmp_path)])[0].longest_prompt == 77
    (tmp_path / "config.json").write_text("{}")
    assert local([str(tmp_path)])[0].longest_prompt > 131072


def test_a_tokenizer_can_be_given_from_elsewhere(tmp_path, dense):
    """A folder without one needs it; a zoo model has none."""
    with pytest.raises(UsageError, match="no tokenizer at"):
        measure([zoo.names()[0]], ["needle"], tmp_path / "run", **SMALL)
    other = tmp_path / "other"
    other.mkdir()
    (dense / "tokenizer.json").rename(other / "tokenizer.json")
    measure([str(dense)], ["needle"], tmp_path / "run", **SMALL, tokenizer=other)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["conditions"][0]["protocol"][
        "settings"
    ]
    assert settings["tokenizer"]["name"] == "other"


def test_the_natural_model_is_known_by_name(monkeypatch, tmp_path):
    """Beside the zoo's, and in the list of what is known."""
    monkeypatch.setattr(natural, "folder", lambda: tmp_path)
    assert resolve(natural.NAME) == Checkpoint(natural.NAME, tmp_path)
    with pytest.raises(UsageError, match=natural.NAME):
        resolve("nothing-of-the-kind")


def test_a_run_of_needles_can_be_mitigated(tmp_path, dense):
    """Version 0.1 ended in AttributeError: the tokenizer of the protocol was a description of one."""
    measure([str(dense)], ["needle"], tmp_path / "run", **SMALL)
    even = {"accuracy": [0.5] * 8, "low": [0.4] * 8, "high": [0.6] * 8}
    profile = {"condition": "dense", "stride": 8, **even, "sensitive": True, "n_blocks": 4, "n_clusters": 2}
    (tmp_path / "run" / "profile.json").write_text(json.dumps({"profiles": [profile]}))
    result = verbs.mitigate(tmp_path / "run", contexts=4)
    assert [outcome.with_ for outcome in result.outcomes] == ["vote", "adaptive vote"]
