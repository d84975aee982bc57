"""Settings that cannot be trained are one clear line before anything is written."""

import pytest
from transformers import Qwen3Config

from phasescope import UsageError
from phasescope.models import Compression
from phasescope.training import RetrievalTask, Start, Text, Training
from tests.builders.corpora import FOURS, SHAPE, made_task

TEXT = Text(corpus="0" * 64, vocabulary=100)


def pooled(name, width=8, stride=4, **rest):
    return Compression(compressor=name, width=width, stride=stride, **rest)


def start(**config):
    """A start whose configuration fits `SHAPE`."""
    names = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 100,
    }
    return Start(weights="1" * 64, config={**names, **config})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"task": None}, "nothing to train on"),
        ({"max_pairs": 113}, "max_pairs is 113, and the records' vocabulary allows 112 pairs"),
        ({"robust": 1.0}, "needs records and a compression"),
        ({"robust_after": 9}, "robust, which is 0"),
        (
            {"robust": 1.0, "robust_after": 9, "steps": 9, "compression": pooled("uniform")},
            "nothing would ever be weighed",
        ),
        (
            {"compression": Compression(compressor="uniform", width=159, stride=8)},
            "too far apart for sequences of at most 158",
        ),
        ({"raw_steps": 9, "steps": 9, "compression": pooled("uniform")}, "nothing would ever be compressed"),
        ({"balance": 1.0}, "there is none"),
        ({"random_shift": True}, "there is none"),
        (
            {"balance": 1.0, "compression": pooled("uniform", 4)},
            "uniform has none",
        ),
        (
            {"random_shift": True, "compression": pooled("dynamic")},
            "dynamic is none",
        ),
        (
            {"random_shift": True, "compression": pooled("scalar_gate", 4, 6)},
            "without gaps",
        ),
        (
            {
                "random_shift": True,
                "compression": pooled("csa", shift=4, tail=8, binding=True),
            },
            "csa is none",
        ),
        (
            {**SHAPE, "task": None, "text": TEXT, "start": start(), "layers": 3},
            "layers is 3, and the checkpoint",
        ),
        (
            {**SHAPE, "text": TEXT, "start": start()},
            "use ids up to 255; the checkpoint to start from has 100",
        ),
        (
            {**SHAPE, "task": None, "text": TEXT, "start": start(vocab_size=99)},
            "ids up to 99; the checkpoint",
        ),
        (
            {
                **SHAPE,
                "task": None,
                "text": TEXT,
                "start": start(),
                "compression": FOURS.model_copy(update={"binding": True}),
            },
            "has learned two",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(wrong, said):
    """What was given, and what is allowed."""
    with pytest.raises(UsageError) as error:
        Training.checked(**wrong)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_start_keeps_what_its_config_says():
    """Older names of rotary settings are read, too, and the vocabulary stays the checkpoint's."""
    begun = start(vocab_size=120, rope_theta=5e5, rms_norm_eps=1e-5, tie_word_embeddings=True)
    settings = Training(**SHAPE, task=None, text=TEXT, start=begun, compression=FOURS)
    config = settings.architecture()
    assert settings.vocabulary_size == config.vocab_size == 120
    assert config.rope_parameters["rope_theta"] == 5e5
    assert (config.rms_norm_eps, config.tie_word_embeddings) == (1e-5, True)
    assert config.plan == FOURS
    assert begun.shape() == SHAPE
    plain = Qwen3Config(**begun.config)
    assert plain.rope_parameters == config.rope_parameters


def test_the_vocabulary_holds_text_and_records():
    """The larger of the two."""
    assert Training(text=TEXT).vocabulary_size == 256
    assert Training(text=TEXT, task=made_task(first=100)).vocabulary_size == 136
    assert Training(text=TEXT, task=None).vocabulary_size == 100
    assert Training().vocabulary_size == RetrievalTask().vocabulary.values[-1] + 1 == 256


def test_the_curriculum_doubles_and_long_contexts_have_fewer_rows():
    """Work per step stays about the same."""
    settings = Training(first_pairs=4, max_pairs=24, rows=48, queries=384)
    assert settings.stages() == [4, 8, 16, 24]
    assert [settings.rows_at(pairs) for pairs in settings.stages()] == [48, 48, 24, 16]


def test_a_config_that_is_no_qwen3s_is_one_line():
    """Whatever class of error the library has for it."""
    with pytest.raises(UsageError, match=r"the config\.json to start from is no Qwen3's: .*hidden_size"):
        Start(weights="", config={"hidden_size": ["x"]}).shape()
