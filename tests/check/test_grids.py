"""Strides from configs: ours, and DeepSeek-V4's old and new fields."""

from pathlib import Path

import pytest

from phasescope import UsageError, zoo
from phasescope.check.grids import config_strides, strides_of


@pytest.mark.parametrize(
    ("config", "strides"),
    [
        ({"compression": {"stride": 8, "width": 8}}, (8,)),
        ({"compression": None}, ()),
        (
            {"compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}},
            (4, 128),
        ),
        ({"compress_ratios": [0, 0, 4, 128, 4, 1, 2, 0]}, (2, 4, 128)),
        ({"compress_rate_csa": 4, "compress_rate_hca": 128}, (4, 128)),
        ({"model_type": "qwen3"}, ()),
    ],
)
def test_strides_of_a_config(config, strides) -> None:
    """Ratios of 0 and 1 fold nothing."""
    assert config_strides(config) == strides


def test_strides_of_a_folder(tmp_path: Path) -> None:
    """Read from config.json; a folder without one is refused in a line."""
    assert strides_of(zoo.folder("w4s4-1kv")) == (4,)
    with pytest.raises(UsageError, match=r"config\.json"):
        strides_of(tmp_path)
