"""Packing: the fewest pads that place keys on strong phases."""

import itertools

import numpy as np
import pytest

from phasescope.errors import UsageError
from phasescope.mitigations import Passage, Profile, pack


def profile(*accuracy: float, sensitive: bool = True) -> Profile:
    return Profile(
        condition="model",
        stride=len(accuracy),
        accuracy=accuracy,
        low=accuracy,
        high=accuracy,
        sensitive=sensitive,
        n_blocks=100,
        n_clusters=25,
    )


def records(rng: np.random.Generator, count: int, most: int = 12) -> list[Passage]:
    lengths = rng.integers(1, most, count)
    return [Passage(tuple(range(length)), (int(rng.integers(length)),)) for length in lengths.tolist()]


def expected(passages: list[Passage], curve: Profile, pads: tuple[int, ...]) -> list[float]:
    """What the profile says of each passage's only key behind given pads."""
    found, position = [], 0
    for passage, pad in zip(passages, pads, strict=True):
        position += pad
        found.append(curve.accuracy[(position + passage.keys[0]) % curve.stride])
        position += len(passage.ids)
    return found


def best_by_trying(passages: list[Passage], curve: Profile, limit: int) -> tuple[int, int]:
    """Well placed passages and pads of the best of all pads, tried one by one."""
    top = max(curve.accuracy) - 0.05
    tried = itertools.product(range(curve.stride), repeat=len(passages))
    scores = [
        (int(np.sum(np.array(expected(passages, curve, pads)) >= top)), -sum(pads))
        for pads in tried
        if sum(pads) <= limit
    ]
    well, few = max(scores)
    return well, -few


@pytest.mark.parametrize("limit", [0, 1, 3, 5, 100])
@pytest.mark.parametrize("seed", range(6))
def test_no_other_pads_do_better(seed: int, limit: int) -> None:
    """Against every assignment of pads, tried one by one."""
    rng = np.random.default_rng(seed)
    curve = profile(*rng.choice([0.3, 0.6, 0.9, 0.92], 4).tolist())
    passages = records(rng, 5)
    found = pack(passages, curve, limit=limit)
    well = int(np.sum(np.asarray(found.after) >= max(curve.accuracy) - 0.05))
    assert (well, found.added) == best_by_trying(passages, curve, limit)


def test_every_key_lands_on_a_strong_phase_for_at_most_half_a_stride_each() -> None:
    """Without a limit; on average over lengths that visit all residues, with one strong phase of eight."""
    passages = records(np.random.default_rng(0), 2000, most=25)
    found = pack(passages, profile(0.1, 0.2, 0.1, 0.9, 0.1, 0.1, 0.2, 0.1), start=17)
    assert set(found.after) == {0.9}
    assert found.added / len(passages) <= 8 / 2 + 1
    assert found.before != found.after


def test_unmarked_passages_only_move_along() -> None:
    """They get no pads, and have no expectation."""
    passages = [Passage((1, 2, 3)), Passage((4,), (0,)), Passage((5, 6))]
    found = pack(passages, profile(0.9, 0.1))
    assert found.pads == (0, 1, 0)
    assert np.isnan(found.after[0])
    assert np.isnan(found.after[2])
    assert found.after[1] == 0.9


def test_a_model_without_an_effect_gets_no_pads() -> None:
    """Nothing is claimed, nothing is added."""
    found = pack(records(np.random.default_rng(1), 9), profile(0.9, 0.1, sensitive=False))
    assert found.added == 0
    assert found.before == found.after


def test_two_keys_of_one_passage_that_cannot_both_be_strong_are_placed_as_well_as_can_be() -> None:
    """Their mean counts, against the best that any offset gives."""
    found = pack([Passage((7,) * 4, (0, 1))], profile(0.9, 0.1, 0.8, 0.7))
    assert found.pads == (2,)
    assert found.after == (0.75,)


def test_wrong_numbers_are_refused() -> None:
    """With what is allowed."""
    with pytest.raises(UsageError, match="keys \\(3,\\) of a passage of 2 tokens: give 0 to 1"):
        Passage((1, 2), (3,))
    with pytest.raises(UsageError, match="limit -1"):
        pack([], profile(0.9, 0.1), limit=-1)


def test_no_passages_need_no_pads() -> None:
    """An empty list is a list."""
    assert pack([], profile(0.9, 0.1)).pads == ()
