"""The published grid: every row is a model that can be built, and trains when it is made small."""

import pytest
import torch

from phasescope.models import CompressedQwen3ForCausalLM
from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import RetrievalTask, Training, train
from phasescope.training.recipes import RECIPES
from phasescope.training.trainer import check_shares

ROWS = RECIPES["paper"](None)
SMALL = {
    "layers": 1,
    "hidden_size": 32,
    "head_dim": 16,
    "feed_forward": 32,
    "heads": 8,
    "steps": 1,
    "accumulate": 1,
}


def test_the_grid_has_every_axis_that_was_published():
    """Five grids, three numbers of KV heads for full attention and W8/S8, six ablations of W8/S4."""
    assert len(ROWS) == 1 + 5 + 4 + 6
    assert {row.kv_heads for row in ROWS.values()} == {1, 4, 8}
    one_change = {name: row for name, row in ROWS.items() if name.startswith("w8s4-")}
    for row in one_change.values():
        assert (row.compression.width, row.compression.stride) == (8, 4)
        assert row.model_copy(update={"compression": None}) == ROWS["full"]


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_a_model_of_half_a_billion_that_eight_devices_can_share(name):
    """Built without memory; the parameters are those of Qwen3-0.6B with fewer KV heads."""
    with torch.device("meta"):
        model = CompressedQwen3ForCausalLM(ROWS[name].architecture())
    assert 0.5e9 < sum(param.numel() for param in model.parameters()) < 0.6e9
    assert model.lm_head.weight is model.model.embed_tokens.weight
    check_shares(ROWS[name], 8)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_takes_a_step_when_it_is_made_small(name, tmp_path):
    """One layer, on records alone."""
    task = RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(8, 32, 32))
    given = {**ROWS[name].model_dump(), **SMALL, "text": None, "task": task, "rows": 4, "max_pairs": 8}
    progress = train(Training(**given), tmp_path)
    assert progress.step == 1
    assert 0 < progress.loss < 20
