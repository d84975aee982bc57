"""Our own models' plans, read from JSON, against the configuration class that reads them with torch."""

from typing import Any

import numpy as np
import pytest

from phasescope import UsageError, WindowGrid
from phasescope.checkpoints import zoo
from phasescope.checkpoints.grids import read_config, read_target
from phasescope.models import CompressedQwen3Config

PLANS: list[dict[str, Any]] = [
    {"compressor": "scalar_gate", "width": 8, "stride": 8},
    {"compressor": "uniform", "width": 12, "stride": 6, "shift": [0, 3]},
    {"compressor": "vector_gate", "width": 4, "stride": 4, "shift": [[0, 2], [1, 3]]},
    {"compressor": "dynamic", "width": 12, "stride": 6},
]
CSA = {
    "compressor": "csa",
    "width": 8,
    "stride": 4,
    "shift": 4,
    "tail": 16,
    "binding": True,
    "settings": {"topk": 8},
}


def config(plan: dict[str, Any] | None, heads: int = 2) -> dict[str, Any]:
    made = CompressedQwen3Config(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=heads,
        head_dim=16,
        compression=plan,
    )
    described: dict[str, Any] = made.to_dict()
    return described


@pytest.mark.parametrize("plan", PLANS)
def test_the_grids_are_those_of_the_configuration_class(plan: dict[str, Any]) -> None:
    """Layer by layer, and head by head where their shifts differ."""
    found = read_config(config(plan))
    by_layer = CompressedQwen3Config(**config(plan)).plan.grids(2, 2)
    for layer, grids in zip(found.layers, by_layer, strict=True):
        assert tuple(fold.grid for fold in layer.folds) == tuple(dict.fromkeys(grids))


def test_the_zoo_is_read_as_its_cards_say() -> None:
    """Controls are controls; the reach is what comes before the first complete window, or the tail."""
    for name in zoo.names():
        found, plan = read_target(zoo.folder(name)), zoo.card(name).compression
        assert found.control is (plan is None)
        if plan is not None:
            shifts = list(dict.fromkeys(np.ravel(plan.shift).tolist()))  # in the order of layers and heads
            assert found.grids == tuple(WindowGrid(plan.width, plan.stride, shift) for shift in shifts)
            assert found.reach == max(plan.width - 1 - max(shifts), plan.tail)


def test_entries_that_are_read_late_reach_one_token_further() -> None:
    """A config that does not say is of version 0.1, whose closing token read the entry."""
    late = config({"compressor": "scalar_gate", "width": 8, "stride": 8})
    old = {**late, "compression": {k: v for k, v in late["compression"].items() if k != "visibility"}}
    found, before = read_config(late), read_config(old)
    assert (found.reach, before.reach) == (8, 7)
    assert any("the next one reads the entry" in note for note in found.notes)
    assert not any("the next one" in note for note in before.notes)


def test_windows_that_follow_content_have_no_fixed_stride() -> None:
    """Mean and longest window are told all the same, as a backend describes them."""
    found = read_config(config(PLANS[3]))
    assert (found.status, found.known_grids) == ("content", [WindowGrid(12, 6)])


def test_a_tail_too_short_for_csa_is_a_hole_even_where_no_class_refuses_it() -> None:
    """The model's own class refuses such a plan; a file can hold it."""
    assert read_config(config(CSA, heads=1)).holes == ()
    found = read_config({**config(CSA, heads=1), "compression": {**CSA, "tail": 1}})
    assert found.holes[0].layers == (0, 1)


@pytest.mark.parametrize(
    "shift", [[0], [0, 0, 0], [[0], [0, 0]], "left", [[0, 0.5], [0, 0]], [[0, 8], [0, 0]], -1]
)
def test_shifts_that_do_not_fit_are_refused(shift: object) -> None:
    """One number, one per layer, or one per layer and head, below the width."""
    with pytest.raises(UsageError):
        read_config({**config(PLANS[0]), "compression": {**PLANS[0], "shift": shift}})
