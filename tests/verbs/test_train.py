"""Settings from what is given of them, and the card of what was trained."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from benchmarks.made_tokenizer import made_tokenizer, made_words
from transformers import Qwen3Config, Qwen3ForCausalLM

from phasescope import PhasescopeError, UsageError
from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.backends.transformers.load import folder_vocabulary
from phasescope.protocols import PrefixPadding
from phasescope.reporting import build_report
from phasescope.text.corpus import build
from phasescope.text.tokens import Tokenizer
from phasescope.training import RECIPES, RetrievalTask, Training, held_out_loss
from phasescope.verbs import Inputs, cost, train, training_settings, write_card
from phasescope.verbs.watch import watcher
from tests.builders.corpora import SHAPE, made_corpus

FEW = {"steps": 2, "rows": 4, "first_pairs": 2, "max_pairs": 4}
GRID = {"compressor": "scalar_gate", "width": 4, "stride": 4}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory.mktemp("made") / "corpus")


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    """A random Qwen3 as transformers saves it, with a tokenizer that has words enough for records."""
    folder = tmp_path_factory.mktemp("qwen3") / "tiny"
    tokenizer = made_tokenizer(made_words(620), bare=())
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=tokenizer.size,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.fast.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer.special))
    return folder


def test_nothing_given_is_the_default_and_text_moves_records_to_other_ids(corpus):
    """As it was before there was text; with text, records' ids follow the text's."""
    assert training_settings(Inputs()) == Training()
    grid = {"compressor": "scalar_gate"}
    plain = training_settings(Inputs(), compression=grid, kv_heads=1)
    assert (plain.compression.width, plain.compression.stride, plain.kv_heads) == (8, 8, 1)
    given = training_settings(Inputs(corpus=corpus.folder), text={"rows": 3}, task={"keys": 20, "fillers": 9})
    assert given.text.corpus == corpus.facts.digest
    assert (given.text.rows, given.text.tokens) == (3, 256)
    assert given.task.fillers == 9
    assert given.task.vocabulary.every == tuple(range(270, 270 + 32 + 20 + 20))
    alone = training_settings(Inputs(corpus=corpus.folder), records=False)
    assert (alone.task, alone.vocabulary_size) == (None, 270)


def test_what_is_given_beside_a_recipe_wins(corpus):
    """Field by field, inside its compression and its text as well."""
    row = RECIPES["small"](None)["w8s4"]
    assert training_settings(Inputs(), recipe="small/w8s4") == row
    given = training_settings(Inputs(), recipe="small/w8s4", compression={"tail": 3}, steps=700)
    assert given == row.model_copy(
        update={"steps": 700, "compression": row.compression.model_copy(update={"tail": 3})}
    )
    full = training_settings(Inputs(), recipe="small/w8s4", compression={"compressor": "none"})
    assert full == row.model_copy(update={"compression": None})
    text = training_settings(Inputs(corpus=corpus.folder), recipe="small/w8s4", text={"weight": 0.5})
    assert (text.text.weight, text.text.corpus) == (0.5, corpus.facts.digest)
    assert text.task.vocabulary.fillers[0] == 270


def test_a_mixture_is_trained_and_its_card_tells_of_records_and_text(tmp_path, corpus, monkeypatch):
    """The tokenizer lies beside the weights, and nats per byte are nats per token times tokens over bytes."""
    monkeypatch.setattr(sys.modules[write_card.__module__], "DEMO_CONTEXTS", 4)
    monkeypatch.setattr(sys.modules[watcher.__module__], "WATCH_CONTEXTS", 3)
    inputs = Inputs(corpus=corpus.folder)
    settings = training_settings(
        inputs, compression=GRID, text={"rows": 2, "tokens": 24}, task={"keys": 8}, **SHAPE, **FEW
    )
    card = train(settings, tmp_path / "run", inputs, command="as given", watch_every=2)
    assert json.loads((tmp_path / "run" / "card.json").read_text()) == card
    assert set(card["measured"]) == {"prefix", "in_sequence"}
    text, facts = card["text"], corpus.facts
    assert text["corpus"] == facts.digest
    assert text["windows"] == facts.tokens["held_out"] // 24
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run").eval()
    assert text["nats_per_token"] == pytest.approx(held_out_loss(model, corpus, 24, 512), abs=1e-4)
    per_byte = text["nats_per_token"] * facts.tokens["held_out"] / facts.bytes["held_out"]
    assert text["nats_per_byte"] == pytest.approx(per_byte, abs=1e-3)
    assert Tokenizer.load(tmp_path / "run").digest == Tokenizer.load(corpus.folder).digest
    assert folder_vocabulary(tmp_path / "run") == settings.task.vocabulary
    assert (tmp_path / "run" / "curve.jsonl").exists()


def test_what_a_card_finds_is_what_a_report_finds(tmp_path, monkeypatch):
    """Of the same run: the phase that the boundary loses is none of the inside gap, in either."""
    monkeypatch.setattr(sys.modules[write_card.__module__], "DEMO_CONTEXTS", 5)
    settings = training_settings(Inputs(), compression=GRID, task={"keys": 8}, **SHAPE, **FEW)
    train(settings, tmp_path, Inputs(), command="as given", measured=False)
    carded = write_card(tmp_path, command="as given").findings
    for one in build_report([tmp_path / "phase"]).analysis.conditions:
        mine = {(f.name, f.outcome, f.residue): f for f in carded[one.condition.protocol]}
        for finding in one.findings:
            if finding.name in ("inside_gap", "boundary_loss", "phase_rate", "phase_sd"):
                own = mine[finding.name, finding.outcome, finding.residue]
                assert own.detail.get("boundary") == finding.detail.get("boundary")
                assert own.value == pytest.approx(finding.value, abs=0.05)


def test_a_model_of_text_alone_has_a_card_without_recall(tmp_path, corpus):
    """Nothing is measured that it was not trained on, and whoever asks it for records is told why not."""
    inputs = Inputs(corpus=corpus.folder)
    given = {"records": False, "text": {"rows": 2, "tokens": 24}, **SHAPE, "steps": 2}
    settings = training_settings(inputs, **given)
    card = train(settings, tmp_path, inputs, command="as given", watch_every=2)
    assert not {"measured", "pairs", "vocabulary", "accuracy"} & set(card)
    assert math.isfinite(card["text"]["nats_per_byte"])
    (look,) = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert set(look) == {"step", "held_out"}
    with pytest.raises(UsageError, match="whole lower-case words"):
        folder_vocabulary(tmp_path)


def test_a_card_can_leave_out_the_measurement(tmp_path):
    """It still names the vocabulary, so that the model can be measured later."""
    settings = training_settings(Inputs(), task={"keys": 8}, **SHAPE, **FEW)
    card = train(settings, tmp_path, Inputs(), command="as given", measured=False)
    assert "measured" not in card
    assert not (tmp_path / "phase").exists()
    assert folder_vocabulary(tmp_path) == settings.task.vocabulary


def test_a_model_of_shared_ids_is_asked_with_shared_ids(tmp_path):
    """Its card names one set of keys and values, and what measures it draws both from there."""
    task = {"keys": 8, "shared_ids": True, "packed": True}
    settings = training_settings(Inputs(), task=task, compression=GRID, **SHAPE, **FEW)
    assert (settings.compression.visibility, settings.task.vocabulary.shares) == ("next", False)
    train(settings, tmp_path, Inputs(), command="as given", measured=False)
    backend = TransformersBackend.load(tmp_path)
    names = backend.vocabulary()
    assert names == settings.task.asked
    assert len(names.keys) == 16
    (batch,) = PrefixPadding(pairs=4, contexts=1).batches(names, np.random.default_rng(0))
    keys, values = {t.prompt_ids[-1] for t in batch}, set(batch[0].candidate_ids)
    assert keys | values <= set(names.keys)
    assert not keys & values
    assert all(reply.ids[0] < settings.vocabulary_size for reply in backend.answer(batch[:4]))


def test_a_card_of_damaged_files_is_refused_in_one_line(tmp_path):
    """Settings and state are read as typed records: nothing is missing, of another type, or beyond its range."""
    settings = training_settings(Inputs(), task={"keys": 8}, **SHAPE, **FEW)
    card = train(settings, tmp_path, Inputs(), command="as given", measured=False)
    assert write_card(tmp_path, command="as given", measured=False).card == card
    for name, field, value, message in (
        ("training.json", "seed", None, "seed is None: Input should be a valid integer"),
        ("training.json", "steps", 10**400, "training.json is damaged"),
        ("state/state.json", "step", "two", "step is 'two'"),
        ("state/state.json", "pairs", 10**400, "state.json is damaged"),
        ("state/state.json", "loss", None, "no loss or no accuracy"),
    ):
        whole = (tmp_path / name).read_text()
        (tmp_path / name).write_text(json.dumps({**json.loads(whole), field: value}))
        with pytest.raises(PhasescopeError, match=message) as error:
            write_card(tmp_path, command="as given", measured=False)
        assert "\n" not in str(error.value)
        (tmp_path / name).write_text(whole)
    (tmp_path / "state" / "state.json").write_text("{}")
    with pytest.raises(PhasescopeError, match="pairs is missing"):
        write_card(tmp_path, command="as given", measured=False)


def test_a_checkpoint_brings_its_shape_tokenizer_words_and_smaller_steps(tmp_path, qwen3):
    """And keeps them: tied embeddings, rotary base, and a text that its tokenizer split."""
    own = Tokenizer.load(qwen3)
    words = made_words(620)
    texts = [" ".join(words[start : start + 20]) for start in range(0, 600, 10)]
    corpus = build(texts, own, tmp_path / "corpus", held_out=0.3)
    inputs = Inputs(corpus=corpus.folder, start=str(qwen3))
    given = {"compression": GRID, "text": {"rows": 2, "tokens": 24}, **FEW}
    settings = training_settings(inputs, **given)
    assert settings.task.vocabulary == own.vocabulary()
    assert (settings.hidden_size, settings.lr_rest, settings.lr_gates) == (16, 0.0002, 0.004)
    assert training_settings(inputs, **given, lr_rest=0.1, optimizer="adamw").lr_rest == 0.1
    card = train(settings, tmp_path / "run", inputs, command="as given", measured=False)
    assert card["start"] == settings.start.weights
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["tie_word_embeddings"], config["vocab_size"]) == (True, own.size)
    assert config["rope_parameters"]["rope_theta"] == 5e5
    assert Tokenizer.load(tmp_path / "run").digest == own.digest


def test_what_a_checkpoint_does_not_go_with_is_refused(tmp_path, corpus, qwen3):
    """A shape, records' keys, another tokenizer's text."""
    inputs = Inputs(start=str(qwen3))
    with pytest.raises(UsageError, match="--hidden-size, --embedding-std is the checkpoint's own; leave"):
        training_settings(inputs, hidden_size=32, embedding_std=0.5)
    with pytest.raises(UsageError, match="--keys is the checkpoint's own"):
        training_settings(inputs, task={"keys": 8})
    with pytest.raises(UsageError, match=r"split by another tokenizer than that of .*; build a corpus with"):
        training_settings(Inputs(corpus=corpus.folder, start=str(qwen3)))
    (tmp_path / "config.json").write_text((qwen3 / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes((qwen3 / "model.safetensors").read_bytes())
    with pytest.raises(UsageError, match=r"neither card\.json nor a tokenizer\.json"):
        training_settings(Inputs(start=str(tmp_path)))
    assert (
        training_settings(Inputs(corpus=corpus.folder, start=str(tmp_path)), records=False).text is not None
    )


def test_records_by_default_are_those_of_the_task():
    """The command line's own defaults name them again."""
    assert training_settings(Inputs(), task={"keys": 112, "fillers": 72}).task == RetrievalTask()


def test_a_plan_says_it_for_so_many_processes():
    """In lines, of the accelerator that was named."""
    lines = cost(Training(steps=9), processes=4, accelerator="h200")
    assert any("4 × h200" in line for line in lines)
