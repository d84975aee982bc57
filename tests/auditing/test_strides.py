"""Strides from a model's configuration."""

import json

import pytest

from phasescope.auditing import strides_of_model
from phasescope.checkpoints import zoo
from phasescope.errors import UsageError


@pytest.mark.parametrize(
    ("config", "strides"),
    [
        (
            {
                "model_type": "deepseek_v4",
                "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
                "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
                "num_hidden_layers": 2,
                "sliding_window": 128,
            },
            (4, 128),
        ),
    ],
)
def test_strides_are_read_from_a_config(tmp_path, config, strides):
    """By the folder or by the file."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert strides_of_model(tmp_path) == strides
    assert strides_of_model(tmp_path / "config.json") == strides


def test_our_own_models_name_their_stride():
    """The zoo's W8/S4 folds every 4 tokens."""
    assert strides_of_model(zoo.folder("w8s4-1kv")) == (4,)


def test_a_model_without_a_grid_is_refused():
    """Full attention has no phases."""
    with pytest.raises(UsageError, match="give --stride"):
        strides_of_model(zoo.folder("full-1kv"))


def test_a_folder_without_a_config_is_refused(tmp_path):
    """One line."""
    with pytest.raises(UsageError):
        strides_of_model(tmp_path)
