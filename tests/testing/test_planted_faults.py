"""Planted faults are found and named; the whole set over 20 seeds is `benchmarks.planted_faults`."""

import pytest
import torch
from benchmarks.planted_faults import KINDS, LocalEngine, named

from phasescope import UsageError
from phasescope.checking import check
from phasescope.checking.engine import gap
from phasescope.testing.planted_faults import FAULTS, ForgetsOverlap, WrongAtLength, lose_lane
from tests.builders.engines import build

CASES = [
    ("tail", "dense", 1, {"features": ["parts"]}),
    ("overlap", "scalar W8/S4", 2, {"features": ["parts"]}),
    ("hits", "vector W8/S8", 3, {"features": ["parts", "prefix"], "longest": 96}),
    ("shift", "scalar W8/S4", 4, {"features": ["parts", "restore"]}),
    ("length", "dense", 5, {"features": ["prefill"], "sweep": 256, "longest": 265}),
    ("tail", "DeepSeek-V4, ties", 6, {"features": ["parts"]}),
]


@pytest.mark.parametrize(("fault", "kind", "seed", "settings"), CASES)
def test_a_planted_fault_is_found_and_named(fault: str, kind: str, seed: int, settings: dict) -> None:
    """The right feature, by the right residues, and nothing else."""
    torch.manual_seed(seed)
    engine = FAULTS[fault](KINDS[kind].build(), name=fault)
    if isinstance(engine, WrongAtLength):
        engine.residue = (37 + 53 * seed) % 128
    plan = {"cases": 6, "sweep": 8, "longest": 48, **settings}
    verdict = check(engine, strides=KINDS[kind].strides, seed=seed, **plan)
    (row,) = verdict.faults
    assert named(fault, row, seed), row


def test_models_without_overlap_cannot_forget_it() -> None:
    """Said in one line."""
    engine = ForgetsOverlap(build("qwen3"), name="m")
    with pytest.raises(UsageError, match="no overlapping windows"):
        engine.read(engine.ids[:4], engine.read(engine.ids[:8]))


def test_a_lost_lane_hurts_prefill_and_spares_decoding() -> None:
    """And is gone when it is repaired."""
    engine = LocalEngine(build("qwen3"), name="m")
    prompt = engine.ids[:21]
    clean = engine.whole(prompt, 2)
    repair = lose_lane(engine.model, stride=4, residue=3)
    assert gap(clean, engine.whole(prompt, 2)) > 0.01
    assert gap(clean, engine.token_by_token(prompt, 1, 2)) < 1e-4
    repair()
    assert gap(clean, engine.whole(prompt, 2)) == 0
