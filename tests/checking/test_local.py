"""Known true cases of `transformers`, on tiny models: what padding and cropping change, and what they do not."""

import numpy as np
import pytest
import torch

from phasescope.checking import Verdict, check
from phasescope.checking.engine import gap
from phasescope.checking.local import LocalEngine, _tensors
from phasescope.checking.ties import EqualScores
from tests.builders.engines import build

SMALL = {"cases": 6, "sweep": 8, "longest": 32}
STRIDES = {"minimax_m3": [8]}


def verdict(name: str, *features: str, **more) -> Verdict:
    engine = LocalEngine(build(name), name=name)
    return check(engine, strides=STRIDES.get(name, [4]), features=features, **{**SMALL, **more})


def state(found: Verdict, feature: str) -> str:
    return next(row.state for row in found.rows if row.feature == feature)


@pytest.mark.parametrize("name", ["qwen3", "ours"])
def test_dense_models_and_ours_are_clean_in_all(name: str) -> None:
    """Every way of reading, speculation and cropping included."""
    found = verdict(name)
    assert {row.state for row in found.rows} == {"holds"}
    assert found.decision == "neither"


@pytest.fixture(scope="module")
def deepseek() -> Verdict:
    """All of DeepSeek-V4, with an indexer without ties."""
    return verdict("deepseek_v4")


def test_left_padding_changes_deepseek_v4(deepseek: Verdict) -> None:
    """Pads are pooled: it fails exactly where there is one, and a batch without pads is clean."""
    row = next(row for row in deepseek.faults if row.feature == "batch")
    assert row.largest_gap is not None
    assert row.largest_gap > 0.1
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.least) == ("pads", 1)


def test_left_padding_changes_minimax_m3() -> None:
    """Positions are compared with key slots."""
    (row,) = verdict("minimax_m3", "batch").faults
    assert row.feature == "batch"
    assert row.largest_gap is not None
    assert row.largest_gap > 0.1
    assert row.smallest is not None
    assert row.smallest.pads


def test_left_padding_leaves_qwen4_exp_alone() -> None:
    """Its indexer counts visible tokens."""
    assert state(verdict("qwen4_exp", "batch", cases=5, longest=24), "batch") == "holds"


def test_cropping_leaves_rejected_tokens_in_the_compressor(deepseek: Verdict) -> None:
    """DeepSeek-V4's cache says that it can be cropped; within the raw window answers are off, beyond it breaks."""
    row = next(row for row in deepseek.faults if row.feature == "crop")
    assert row.failed == row.cases
    assert "RuntimeError" in row.raised
    assert row.largest_gap is not None
    assert row.largest_gap > 0.05
    assert row.smallest is not None
    assert row.smallest.cut


@pytest.mark.parametrize(
    "feature", ["prefill", "parts", "chunks", "steps", "decode", "prefix", "restore", "reorder"]
)
def test_any_split_of_its_prefill_is_clean(deepseek: Verdict, feature: str) -> None:
    """Cuts everywhere, chunks, decoding, restoring and reordering."""
    assert state(deepseek, feature) == "holds"


def test_it_refuses_speculation_by_itself(deepseek: Verdict) -> None:
    """A refusal is no fault."""
    assert state(deepseek, "speculation") == "absent"


def test_equal_scores_of_a_tiny_indexer_are_no_fault() -> None:
    """One index head scores many entries with 0: answers differ by much, and nobody is accused."""
    found = verdict("deepseek_v4 with ties", "prefill", "parts")
    assert not found.faults
    assert "ties" in {row.state for row in found.rows}
    assert found.equal_scores > 0


def test_settled_scores_are_those_of_topk_where_none_are_equal() -> None:
    """And the first of equal ones otherwise."""
    scores = torch.tensor([[3.0, 1.0, 2.0, 0.5]])
    with EqualScores() as mode:
        assert torch.equal(scores.topk(2).indices, torch.tensor([[0, 2]]))
        assert mode.seen == 0
        equal = torch.tensor([0.0, 1.0, 0.0, 0.0])
        assert torch.topk(equal, 2).indices.tolist() == [1, 0]
        assert mode.seen == 1
        assert torch.topk(equal, 4).values.tolist() == [1, 0, 0, 0]
        assert mode.seen == 1
        hidden = torch.tensor([1.0, -torch.inf, -torch.inf])
        assert hidden.topk(2).indices[0] == 0
        assert mode.seen == 1
        assert torch.topk(torch.tensor([2.0, 1.0, 1.0]), 1, largest=False).indices.tolist() == [1]


def test_a_rounding_error_moves_the_answer_a_little() -> None:
    """And is gone afterwards; the same generator makes the same error."""
    engine = LocalEngine(build("qwen3"), name="m")
    prompt = engine.ids[:20]
    clean = engine.whole(prompt, 2)
    first, second = (engine.noisy(prompt, 2, np.random.default_rng(0)) for _ in range(2))
    assert 0 < gap(clean, first) < 1e-3
    assert gap(first, second) == 0
    assert gap(clean, engine.whole(prompt, 2)) == 0


def test_a_saved_state_holds_every_tensor_of_a_cache() -> None:
    """Buffers, overlap and entries of DeepSeek-V4 among them; restoring them all changes nothing."""
    engine = LocalEngine(build("deepseek_v4"), name="m")
    with torch.inference_mode():
        names = _tensors(engine.read(engine.ids[:23]).cache)
    assert any("overlap_kv" in name for name in names)
    assert any("buffer_kv" in name for name in names)
    assert gap(engine.whole(engine.ids[:30], 3), engine.restored(engine.ids[:30], 23, (5, 6), 3)) < 1e-4


def test_special_tokens_are_never_drawn() -> None:
    """They may end a continuation or open a template."""
    model = build("qwen3")
    model.config.eos_token_id = [3, 5]
    assert not {3, 5} & set(LocalEngine(model, name="m").ids)
