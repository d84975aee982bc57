"""The regime in which heads specialise: every row trains, and a factor changes one thing."""

import pytest

from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import Training, train
from phasescope.training.recipes import RECIPES
from phasescope.training.recipes.packed import FACTORS

ROWS = RECIPES["packed"](None)
SMALL = {
    "layers": 1,
    "hidden_size": 32,
    "head_dim": 16,
    "feed_forward": 32,
    "steps": 1,
    "raw_steps": 0,
    "rows": 4,
}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_takes_a_step_when_it_is_made_small(name, tmp_path):
    """On records side by side of a small vocabulary."""
    row = ROWS[name]
    task = row.task.model_copy(update={"vocabulary": RetrievalVocabulary.contiguous(8, 32, 32)})
    given = {**row.model_dump(), **SMALL, "task": task, "max_pairs": 8}
    assert train(Training(**given), tmp_path).step == 1


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_changes_what_it_names_and_nothing_else(name):
    """All other settings are those of W8/S8, which is read by the token after the one that closes a window."""
    base, changed = ROWS["w8s8"].model_dump(), ROWS[f"w8s8-{name}"].model_dump()
    flat = {
        (part, key)
        for part in ("compression", "task")
        for key in base[part]
        if base[part][key] != changed[part][key]
    } | {("", key) for key in base if key not in ("compression", "task") and base[key] != changed[key]}
    grid, task, training = FACTORS[name]
    expected = (
        {("compression", key) for key in grid}
        | {("task", key) for key in task}
        | {("", key) for key in training}
    )
    assert flat == expected
    assert base["compression"]["visibility"] == "next"
