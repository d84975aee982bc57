"""Training on mixtures: what gradients add up to, what looks leave alone, and resume to the same bits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from phasescope import BrokenRecordError, UsageError
from phasescope.errors import PhasescopeError
from phasescope.files import alone
from phasescope.text.corpus import Corpus
from phasescope.training import Training, checkpoint, read_start, train
from phasescope.training.trainer import new_model
from phasescope.verbs import watch
from phasescope.verbs.watch import watcher
from tests.builders.corpora import FOURS, SHAPE, made_corpus, made_task, mixed


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch):
    """Three contexts instead of 24."""
    monkeypatch.setattr(watch, "WATCH_CONTEXTS", 3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory.mktemp("made") / "corpus")


@pytest.fixture(scope="module")
def plain(tmp_path_factory, corpus):
    """A full-attention model that a few steps on text have taught the commonest tokens."""
    folder = tmp_path_factory.mktemp("plain")
    task = {"compression": None, "task": None}
    train(Training(**mixed(corpus, **task, steps=30, warmup=2, lr_rest=0.02)), folder, corpus=corpus)
    return folder


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class StoppedError(Exception):
    """As a kill, at a step."""


def stopped_at(step):
    def report(progress):
        if progress.step == step:
            raise StoppedError

    return report


def test_reading_a_step_in_parts_is_reading_it_at_once_up_to_rounding(tmp_path, corpus):
    """Two steps with 1, 2 and 4 parts: the same weights, losses and tokens."""
    ends = {}
    for parts in (1, 2, 4):
        settings = Training(**mixed(corpus, steps=2, accumulate=parts))
        ends[parts] = train(settings, tmp_path / str(parts), corpus=corpus)
    one = load_file(tmp_path / "1" / "model.safetensors")
    for parts in (2, 4):
        other = load_file(tmp_path / str(parts) / "model.safetensors")
        assert max(float((one[name] - other[name]).abs().max()) for name in one) < 2e-4
        assert ends[parts].loss == pytest.approx(ends[1].loss, rel=1e-5)
        assert ends[parts].text_loss == pytest.approx(ends[1].text_loss, rel=1e-5)
        assert ends[parts].tokens == ends[1].tokens


def test_text_is_learned_and_its_weight_counts(tmp_path, corpus):
    """In 40 steps on text alone the loss falls; a mixture keeps both losses."""
    untrained = new_model(Training(**mixed(corpus))).eval()
    both = train(Training(**mixed(corpus, steps=2)), tmp_path / "both", corpus=corpus)
    assert both.text_loss is not None
    assert both.loss is not None
    text = Training(**mixed(corpus, task=None, steps=40, warmup=2, lr_rest=0.02, schedule="cosine"))
    found = train(text, tmp_path / "text", corpus=corpus)
    assert (found.loss, found.accuracy) == (None, None)
    assert found.text_loss < both.text_loss - 0.2
    assert found.tokens == 40 * 4 * 24
    assert untrained.config.vocab_size > corpus.facts.vocabulary


def test_looks_see_the_model_and_leave_the_weights_alone(tmp_path, corpus):
    """With looks and without, the same bytes; a look tells losses, phases and gates."""
    settings = Training(**mixed(corpus, steps=6, random_shift=True, balance=0.5))
    train(settings, tmp_path / "without", corpus=corpus)
    train(settings, tmp_path / "with", corpus=corpus, watch=watcher(settings, corpus), watch_every=4)
    assert weights(tmp_path / "with") == weights(tmp_path / "without")
    looks = lines(tmp_path / "with" / "curve.jsonl")
    assert [look["step"] for look in looks] == [4, 6]
    for look in looks:
        assert len(look["phases"]) == 4
        assert all(0 <= rate <= 1 for rate in look["phases"])
        assert look["low"] <= look["phase_sd"] <= look["high"]
        assert 4 < look["held_out"] < 8
        (heads,) = look["gates"]
        assert [sum(slots) for slots in heads] == pytest.approx([1, 1], abs=1e-3)
    assert not (tmp_path / "without" / "curve.jsonl").exists()


EVERYTHING = {
    "optimizer": "adamw",
    "lr_matrices": 0.004,
    "accumulate": 2,
    "random_shift": True,
    "balance": 0.5,
    "schedule": "cosine",
    "weight_decay": 0.1,
}


@pytest.mark.parametrize(
    "given",
    [
        {"steps": 12},
        {"steps": 12, **EVERYTHING},
        {"steps": 12, "task": None, "compression": None},
        {"steps": 12, "text": None, "optimizer": "adamw"},
    ],
    ids=["mixture", "everything", "text", "records"],
)
def test_a_run_that_stops_and_goes_on_ends_with_the_same_bits(tmp_path, corpus, given):
    """Stopped between two checkpoints, at one, and right behind a look: same weights, same looks."""
    settings = Training(**mixed(corpus, **given))
    text = None if settings.text is None else corpus
    watching = {"watch": watcher(settings, text), "watch_every": 4, "every": 3, "corpus": text}
    train(settings, tmp_path / "whole", **watching)
    for step in (4, 6, 10):
        with pytest.raises(StoppedError):
            train(settings, tmp_path / "cut", report=stopped_at(step), **watching)
    train(settings, tmp_path / "cut", **watching)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    curves = [(tmp_path / name / "curve.jsonl").read_bytes() for name in ("whole", "cut")]
    assert curves[0] == curves[1]
    logs = [
        [{**line, "seconds": 0} for line in lines(tmp_path / name / "log.jsonl")] for name in ("whole", "cut")
    ]
    assert logs[0] == logs[1]


SCRIPT = """
import sys
from pathlib import Path
from phasescope.text.corpus import Corpus
from phasescope.verbs import watch
from phasescope.verbs import watch
from phasescope.training import Training, train
import torch
watch.WATCH_CONTEXTS = 3
torch.set_num_threads(1)
settings, corpus = Training.model_validate_json(sys.argv[1]), Corpus.open(Path(sys.argv[3]))
look = {"watch": watch.watcher(settings, corpus), "watch_every": 10}
train(settings, Path(sys.argv[2]), corpus=corpus, start=Path(sys.argv[4]), every=3, **look)
"""


@pytest.mark.slow
def test_a_killed_run_from_a_checkpoint_ends_with_the_same_bits(tmp_path, corpus, plain):
    """SIGKILL while everything is on and the run started from a checkpoint; an uninterrupted run agrees."""
    found = read_start(plain)
    task = made_task()  # on the checkpoint's own ids
    settings = Training(**mixed(corpus, steps=40, start=found, task=task, **EVERYTHING))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        watching = {"watch": watcher(settings, corpus), "watch_every": 10, "every": 3}
        train(settings, tmp_path / "whole", corpus=corpus, start=plain, **watching)
    finally:
        torch.set_num_threads(threads)
    log = tmp_path / "cut" / "log.jsonl"
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        settings.model_dump_json(),
        tmp_path / "cut",
        corpus.folder,
        plain,
    ]

    def process():
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    killed = process()
    while killed.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < 4):
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "cut" / "model.safetensors").exists(), "the run was over before it was killed"
    again = process()
    _, said = again.communicate(timeout=600)
    assert again.returncode == 0, said.decode()
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    curves = [(tmp_path / name / "curve.jsonl").read_bytes() for name in ("whole", "cut")]
    assert curves[0] == curves[1]


def test_other_text_and_too_little_of_it_are_refused_before_anything_is_written(tmp_path, corpus):
    """The settings name their corpus."""
    settings = mixed(corpus)
    with pytest.raises(UsageError, match="and none was given"):
        train(Training(**settings), tmp_path / "run")
    with pytest.raises(UsageError, match="name no text, and a corpus was given"):
        train(Training(**{**settings, "text": None}), tmp_path / "run", corpus=corpus)
    other = settings["text"].model_copy(update={"corpus": "0" * 64})
    with pytest.raises(UsageError, match="the settings name the corpus 000000000000"):
        train(Training(**{**settings, "text": other}), tmp_path / "run", corpus=corpus)
    longer = settings["text"].model_copy(update={"tokens": corpus.facts.tokens["held_out"] + 1})
    with pytest.raises(UsageError, match=r"tokens in held_out\.bin, fewer than a window"):
        train(Training(**{**settings, "text": longer}), tmp_path / "run", corpus=corpus)
    with pytest.raises(UsageError, match="4 windows of text of a step cannot be shared evenly"):
        train(Training(**{**settings, "accumulate": 8}), tmp_path / "run", corpus=corpus)
    assert not (tmp_path / "run").exists()


def test_training_that_diverges_is_one_clear_line(tmp_path, corpus):
    """It names the step and what to change."""
    settings = Training(**mixed(corpus, steps=30, lr_rest=1e30, lr_matrices=1e30, warmup=0))
    with pytest.raises(
        UsageError, match=r"training diverged: \w+ is (nan|inf) at step \d+; start again with"
    ):
        train(settings, tmp_path, corpus=corpus)


def copy_of(folder, out):
    shutil.copytree(folder, out)
    return out


def test_a_start_keeps_every_weight_and_adds_a_compressor(tmp_path, plain, corpus):
    """Bit for bit; what is new follows from the seed."""
    task = {"task": None, "compression": FOURS}
    settings = Training(**mixed(corpus, **task, start=read_start(plain)))
    model, again = (new_model(settings, plain) for _ in range(2))
    other = new_model(settings.model_copy(update={"seed": 1}), plain)
    before, after = load_file(plain / "model.safetensors"), model.state_dict()
    new = set(after) - set(before)
    assert new == {f"model.layers.0.self_attn.compressor.{name}" for name in ("gate.weight", "slot_bias")}
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(after[name], again.state_dict()[name]) for name in new)
    assert not torch.equal(after[min(new)], other.state_dict()[min(new)])
    assert after["model.layers.0.self_attn.compressor.slot_bias"].abs().sum() == 0


def test_a_start_from_what_has_learned_text_begins_lower_and_goes_on(tmp_path, plain, corpus):
    """The first loss is far below a random model's, in bfloat16 checkpoints too; the weights move."""
    from transformers import AutoModelForCausalLM

    small = tmp_path / "small"
    AutoModelForCausalLM.from_pretrained(plain).bfloat16().save_pretrained(small)
    losses = {}
    for name, folder in (("random", None), ("kept", plain), ("bf16", small)):
        begun = None if folder is None else read_start(folder)
        settings = Training(**mixed(corpus, task=None, start=begun, steps=1))
        losses[name] = train(settings, tmp_path / name, corpus=corpus, start=folder).text_loss
    assert losses["kept"] < losses["random"] - 0.3
    assert losses["bf16"] == pytest.approx(losses["kept"], abs=0.02)
    assert load_file(tmp_path / "bf16" / "model.safetensors")["lm_head.weight"].dtype is torch.float32


def test_a_run_goes_on_from_no_other_weights(tmp_path, plain, corpus):
    """The digest of the weights is part of the settings, in the folder of the run as well."""
    settings = Training(**mixed(corpus, task=None, start=read_start(plain), steps=1))
    changed = copy_of(plain, tmp_path / "changed")
    data = bytearray((changed / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (changed / "model.safetensors").write_bytes(bytes(data))
    for wrong in (None, changed):
        with pytest.raises(UsageError, match=r"start from the weights \w{12}…, and .* was given"):
            train(settings, tmp_path / "run", corpus=corpus, start=wrong)
    train(settings, tmp_path / "run", corpus=corpus, start=plain)
    other = settings.model_copy(update={"start": read_start(changed)})
    with pytest.raises(UsageError, match="holds a run with other settings"):
        train(other, tmp_path / "run", corpus=corpus, start=changed)


def test_what_is_no_plain_qwen3_is_refused(tmp_path, plain):
    """By its config and its files."""
    other = copy_of(plain, tmp_path / "other")
    config = json.loads((plain / "config.json").read_text())

    def refused(said, **changes):
        (other / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(UsageError, match=said):
            read_start(other)

    refused("holds a model of type 'llama'; give a plain Qwen3", model_type="llama")
    refused("has a compressor already", compression={"compressor": "uniform", "width": 4, "stride": 4})
    refused("is quantised", quantization_config={"quant_method": "fp8"})
    assert config["model_type"] == "phasescope_qwen3"
    (other / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    begun = read_start(other)
    assert begun == read_start(plain)
    deeper = {**begun.config, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
    wrong = begun.model_copy(update={"config": deeper})
    with pytest.raises(UsageError, match="are not those of its config"):
        new_model(Training(**{**SHAPE, "layers": 2}, start=wrong, task=made_task()), other)
    (other / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"holds no \*\.safetensors"):
        read_start(other)
    with pytest.raises(UsageError, match="holds no config"):
        read_start(tmp_path)


DAMAGES = {
    "a state that was cut": (
        lambda run: cut(run / "state" / "state.safetensors"),
        "not written together",
    ),
    "a state with a turned bit": (
        lambda run: turn(run / "state" / "state.safetensors"),
        "not written together",
    ),
    "a state that is gone": (lambda run: (run / "state" / "state.safetensors").unlink(), "cannot be read"),
    "a state of nothing": (
        lambda run: (run / "state" / "state.json").write_text("[]"),
        "state.json is damaged",
    ),
    "a state without pairs": (
        lambda run: edit(run / "state" / "state.json", '"pairs": 2,', ""),
        "pairs is missing",
    ),
    "a state with a word for a step": (
        lambda run: edit(run / "state" / "state.json", '"step": 2', '"step": "x"'),
        "step is 'x'",
    ),
    "a state with a huge number": (
        lambda run: edit(run / "state" / "state.json", '"step": 2', f'"step": {"9" * 400}'),
        "state.json is damaged",
    ),
    "settings that miss a bracket": (lambda run: cut(run / "training.json", 200), "training.json is damaged"),
    "settings of a wrong type": (
        lambda run: edit(run / "training.json", '"steps": 4', '"steps": [4]'),
        r"steps is \[4\]",
    ),
    "settings with a huge number": (
        lambda run: edit(run / "training.json", '"steps": 4', f'"steps": {"9" * 400}'),
        "training.json is damaged",
    ),
    "a state of another step": (
        lambda run: edit(run / "state" / "state.json", '"step": 2', '"step": 9'),
        "not written together",
    ),
    "a state of no step": (
        lambda run: edit(run / "state" / "state.json", '"step": 2,', ""),
        "not written together",
    ),
    "a log with junk": (lambda run: edit(run / "log.jsonl", "{", "junk {"), "line 1 is not JSON"),
    "a curve without steps": (lambda run: (run / "curve.jsonl").write_text("{}\n"), "line 1 has no step"),
    "a folder without settings": (lambda run: (run / "training.json").unlink(), "no training run's"),
}


def cut(path, kept=1000):
    path.write_bytes(path.read_bytes()[:kept])


def turn(path):
    """The last bit of the last number: still a valid file."""
    held = bytearray(path.read_bytes())
    held[-4] ^= 1
    path.write_bytes(held)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture(scope="module")
def begun(tmp_path_factory, corpus):
    """A run of four steps that stopped after two."""
    out = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(StoppedError):
        train(Training(**mixed(corpus, steps=4)), out, corpus=corpus, every=1, report=stopped_at(2))
    return out


def test_a_folder_that_another_process_trains_in_is_refused(tmp_path, corpus, begun):
    """Before anything of it is read or written; once the other has gone, the run goes on."""
    out, settings = copy_of(begun, tmp_path / "run"), Training(**mixed(corpus, steps=4))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with alone(out), pytest.raises(UsageError, match="being written by another process"):
        train(settings, out, corpus=corpus, every=1)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert train(settings, out, corpus=corpus, every=1).step == 4


def test_a_corpus_with_a_turned_bit_is_not_trained_on(tmp_path, corpus):
    """Even where it makes another valid id."""
    other = tmp_path / "corpus"
    shutil.copytree(corpus.folder, other)
    turned = bytearray((other / "train.bin").read_bytes())
    turned[-2] ^= 1
    (other / "train.bin").write_bytes(turned)
    corpus.verify()
    with pytest.raises(BrokenRecordError, match=r"other tokens than corpus\.json"):
        train(Training(**mixed(corpus, steps=1)), tmp_path / "run", corpus=Corpus.open(other))
    assert not (tmp_path / "run").exists()


def test_settings_without_a_later_field_are_resumed(tmp_path, corpus, begun):
    """A field that came after the run began has its default, which changes nothing."""
    out = copy_of(begun, tmp_path / "run")
    edit(out / "training.json", '  "shared_start": false,\n', "")
    assert train(Training(**mixed(corpus, steps=4)), out, corpus=corpus, every=1).step == 4


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_refused_in_one_line(tmp_path, corpus, begun, damage):
    """What is wrong, and where; the run's files stay as they are."""
    out = tmp_path / "run"
    shutil.copytree(begun, out)
    change, said = DAMAGES[damage]
    change(out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(PhasescopeError, match=said):
        train(Training(**mixed(corpus, steps=4)), out, corpus=corpus, every=1)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, corpus, begun, monkeypatch):
    """A state that cannot be written leaves the one before it, and the run goes on when there is room."""
    out, settings = copy_of(begun, tmp_path / "run"), Training(**mixed(corpus, steps=4))

    def full(tensors, path):
        raise SafetensorError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        with pytest.raises(UsageError, match="make room"):
            train(settings, out, corpus=corpus, every=1)
    assert json.loads((out / "state" / "state.json").read_text())["step"] == 2
    train(settings, out, corpus=corpus, every=1)
    train(settings, tmp_path / "whole", corpus=corpus, every=1)
    assert weights(out) == weights(tmp_path / "whole")
