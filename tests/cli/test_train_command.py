"""`phasescope corpus` and `phasescope train`: options in, settings and lines out; in this process."""

import json
import shlex

import pytest

from phasescope import verbs
from phasescope.cli import train
from phasescope.cli.commands import called
from phasescope.errors import UsageError
from phasescope.models import Compression
from phasescope.training import RECIPES, Training
from tests.builders.corpora import made_corpus

TINY = "--layers 1 --hidden-size 16 --heads 2 --kv-heads 1 --head-dim 8 --feed-forward 16 --steps 2"


def said(command):
    """Run a command; errors come as they are."""
    words = shlex.split(command)
    return called(words)


@pytest.fixture
def settings(monkeypatch):
    """The settings of a command that would train."""
    made = []

    def train(settings, out, inputs, **rest):
        made.append(settings)
        return {}

    monkeypatch.setattr(verbs, "train", train)

    def settings_of(options):
        said(f"train --out nowhere {options}")
        return made[-1]

    return settings_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory.mktemp("made") / "corpus")


def test_every_setting_is_an_option_with_the_help_default_and_range_of_its_class():
    """Nothing is said twice, and nothing is out of reach."""
    offered = {option.name for option in train.TRAINING}
    plain = {
        name for name, field in Training.model_fields.items() if isinstance(field.default, int | float | str)
    }
    assert plain == offered


ZOO = {
    "--steps 2400 --kv-heads 1": {"steps": 2400, "kv_heads": 1},
    "--steps 4000 --compressor scalar_gate --width 8 --stride 4 --kv-heads 1": {
        "steps": 4000,
        "kv_heads": 1,
        "compression": Compression(compressor="scalar_gate", width=8, stride=4),
    },
    "--steps 2500 --compressor scalar_gate --width 8 --stride 8 --kv-heads 2 --head-dim 16 --promote 2.5 --seed 1": {
        "steps": 2500,
        "kv_heads": 2,
        "head_dim": 16,
        "promote": 2.5,
        "seed": 1,
        "compression": Compression(compressor="scalar_gate", width=8, stride=8),
    },
}


@pytest.mark.parametrize("options", ZOO)
def test_the_zoos_commands_give_the_zoos_settings(settings, options):
    """As docs/zoo.md has them."""
    assert settings(options) == Training(**ZOO[options])


@pytest.mark.parametrize(
    ("given", "shift"),
    [("3", 3), ("0,4", (0, 4)), ("0,4;2,6", ((0, 4), (2, 6))), ("1,2;", None)],
)
def test_a_shift_is_one_number_or_one_per_layer_or_per_head(settings, given, shift):
    """A semicolon ends a layer; what does not fit the layers is refused when the model is made."""
    grid = "--compressor scalar_gate --width 8 --stride 8"
    made = settings(f"{grid} --shift '{given}'").compression.shift
    assert made == (((1, 2),) if shift is None else shift)


def test_every_kind_of_option_reaches_its_field(settings, corpus):
    """Grid, shape, records, text and steps."""
    made = settings(
        f"--corpus {corpus.folder} --text-rows 6 --text-tokens 32 --text-weight 0.5 --compressor csa --width 8 "
        "--stride 4 --shift 4 --tail 8 --binding --setting topk=4 --rotary 0.5 --sink --kv-heads 1 "
        "--visibility next --hidden-size 32 --rows 12 --queries 100 --fillers 5 --keys 20 --packed --shared-ids "
        "--optimizer adamw --schedule cosine "
        "--precision bf16 --accumulate 2 --clip 0.5 --weight-decay 0.1 --warmup 3 --decay 0.5 --lr-matrices 0.1"
    )
    assert made.text.model_dump(exclude={"corpus", "vocabulary"}) == {"rows": 6, "tokens": 32, "weight": 0.5}
    assert made.compression == Compression(
        compressor="csa",
        width=8,
        stride=4,
        shift=4,
        tail=8,
        visibility="next",
        binding=True,
        rotary=0.5,
        sink=True,
        settings={"topk": 4},
    )
    assert (made.task.packed, made.task.shared_ids, made.task.asked.pairs) == (True, True, 20)
    assert (made.hidden_size, made.rows, made.queries, made.task.fillers) == (32, 12, 100, 5)
    assert (made.optimizer, made.schedule, made.precision, made.accumulate) == ("adamw", "cosine", "bf16", 2)
    assert (made.clip, made.weight_decay, made.warmup, made.decay, made.lr_matrices) == (
        0.5,
        0.1,
        3,
        0.5,
        0.1,
    )


def test_a_recipe_is_overridden_by_what_is_said_and_by_no_default(settings):
    """A row's own KV heads stay unless they are named; its default value can be named, too."""
    row = RECIPES["small"](None)["full-4kv"]
    assert settings("--recipe small/full-4kv") == row
    assert settings("--recipe small/full-4kv --kv-heads 2").kv_heads == 2
    assert settings("--recipe small/w8s8 --stride 4 --seed 3").compression.stride == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--recipe nothing/row", "unknown recipe 'nothing'; known: .*small"),
        ("--recipe small/w1", "has no row 'w1'; it has full, "),
        ("--text-rows 3", "--text-rows says how to read text, and there is no --corpus"),
        ("--no-records --keys 3 --rows 4", "--rows, --keys is about records"),
        ("--keys 0", "keys is 0; give 1 to 100,000"),
        ("--threads 1000000", "give at most 1024"),
        ("--seed 99999999999999999999", "give less than 9223372036854775808"),
        ("--robust 1", "needs records and a compression"),
        ("--no-records", "nothing to train on"),
        ("--shift 2", "--shift says how to compress, and there is no --compressor"),
        ("--setting topk=1", "--setting says how to compress"),
        ("--compressor scalar_gate --shift x", "--shift x is no number of tokens"),
        ("--corpus nowhere", "no corpus at nowhere; make one with"),
        ("--from nowhere", "no model 'nowhere'"),
        ("--from w8s8-1kv", "has a compressor already"),
        ("--from full-1kv --layers 1", "--layers is the checkpoint's own"),
        ("--balance 1", "there is none"),
        ("--lr-gates 0", "lr_gates is 0.0; give more than 0"),
        ("--max-pairs 113", "max_pairs is 113"),
        ("--accelerator h100", "are for --plan"),
        ("--hidden-size 1000000000000000000", "hidden_size is 1000000000000000000"),
        ("--compressor uniform --stride 1000000000000000000", "give at most 1,048,576"),
    ],
)
def test_wrong_options_are_one_clear_line(settings, options, message):
    """What was given, and what is allowed or what there is."""
    with pytest.raises(UsageError, match=message) as error:
        settings(options)
    assert "\n" not in str(error.value)


def test_a_run_needs_a_folder_and_a_plan_none(monkeypatch, capsys):
    """The plan's lines are printed, and nothing is trained."""
    with pytest.raises(UsageError, match="give --out, the folder of the run; or --plan"):
        said("train")
    monkeypatch.setattr(verbs, "cost", lambda settings, **given: [f"{settings.steps}", f"{given}"])
    said("train --plan --steps 5 --processes 8 --accelerator h200")
    assert capsys.readouterr().out == "5\n{'processes': 8, 'accelerator': 'h200', 'tracker': None}\n"


def test_a_plan_refuses_an_unknown_tracker():
    """As the run would."""
    with pytest.raises(UsageError, match=r"unknown tracker 'nonsense'; known: .*tensorboard"):
        said("train --plan --tracker nonsense")


def test_a_corpus_is_built_and_trained_on(tmp_path, capsys):
    """From a text file to a card, with a line for each; the second build is refused."""
    (tmp_path / "text.txt").write_text("".join(f"line {n} of {n * n} lines\n" for n in range(300)))
    build = (
        f"corpus {tmp_path / 'c'} --text {tmp_path} --suffix txt --cut 100 --vocabulary 270 --held-out 0.2"
    )
    said(build)
    (line,) = capsys.readouterr().out.splitlines()
    facts = json.loads((tmp_path / "c" / "corpus.json").read_text())
    assert f"{facts['tokens']['train']:,} tokens in {facts['documents']['train']:,} documents" in line
    assert f"held out {facts['tokens']['held_out']:,} in" in line
    assert "vocabulary 270" in line
    with pytest.raises(UsageError, match="holds a corpus already"):
        said(build)
    run = tmp_path / "run"
    said(f"train --out {run} --corpus {tmp_path / 'c'} --no-records --text-rows 2 --text-tokens 16 {TINY}")
    out = capsys.readouterr().out
    card = json.loads((run / "card.json").read_text())
    assert f"{card['text']['nats_per_token']:.3f} nats per token" in out
    said(f"train --out {tmp_path / 'quick'} --no-measure --max-pairs 4 --rows 4 {TINY}")
    assert capsys.readouterr().out.strip() == f"wrote {tmp_path / 'quick'}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--text . --vocabulary 300 --tokenizer .", "give either --tokenizer"),
        ("--text .", "give either --tokenizer"),
        ("--vocabulary 300", "give either --text, files and folders, or --dataset"),
        ("--vocabulary 300 --text . --dataset name", "give either --text"),
        ("--vocabulary 256 --text {text}", "give at least 257"),
        ("--vocabulary 300 --text {text} --held-out 1.5", "give a share between 0 and 1"),
        ("--vocabulary 300 --text nowhere", "no text at nowhere"),
        ("--vocabulary 300 --text {text} --suffix py", "no text for .*; give more, cut long ones"),
        ("--tokenizer nowhere --text {text}", "no tokenizer at nowhere"),
    ],
)
def test_wrong_corpora_are_one_clear_line(tmp_path, options, message):
    """Nothing is left behind."""
    (tmp_path / "text.txt").write_text("one document alone")
    with pytest.raises(UsageError, match=message) as error:
        said(f"corpus {tmp_path / 'c'} {options.format(text=tmp_path / 'text.txt')}")
    assert "\n" not in str(error.value)
    made = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert set(made) <= {"text.txt", ".lock"}
