"""What a difference means: a sound engine is not accused, and a faulty one of the fault that it has."""

import numpy as np
import pytest

from phasescope import UsageError
from phasescope.checking import Verdict, check
from phasescope.checking.lossy import kind_of, must_differ

from . import engines
from .toy import LosesTail, RoundsHits, Toy


def verdict(engine: Toy, seed: int = 0, **more) -> Verdict:
    return check(engine, strides=[16, 64], seed=seed, **{"sweep": 100, "longest": 150, **more})


def states(found: Verdict) -> dict[str, str]:
    return {row.feature: row.state for row in found.rows}


class Rounding(Toy):
    """Log-probabilities that are off as float32 sums in another order are, by 2e-6 of their size and no more."""

    def row(self, ids, extra=0):
        row = super().row(ids, extra)
        return row * (1 + 1e-6 * self.rng.normal(size=len(row)))

    def noisy(self, prompt, new, rng):
        return super(Toy, self).noisy(prompt, new, rng)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "build",
    [
        engines.RareNoise,
        engines.Kernels,
        lambda seed: engines.Kernels(seed, eps=2.0**-23),
        lambda seed: engines.Kernels(seed, batches=False),
        lambda seed: engines.Kernels(seed, batches=False, eps=2.0**-23),
        lambda seed: Rounding(),
    ],
    ids=["rare noise", "kernels", "exact kernels", "no batches", "exact, no batches", "rounding"],
)
def test_no_sound_engine_is_accused(build, seed: int) -> None:
    """Noise in one call of twenty, kernels by the number of rows, sums in another order."""
    assert not verdict(build(seed), seed).faults


def test_kernels_do_not_hide_a_fault() -> None:
    """What stands out from the spread between shapes is accused, and the spread is told."""

    class Faulty(engines.Kernels):
        def warm(self, prompt, cut, other, new):
            return self.read(other + prompt[cut:], len(prompt) - cut, new)

    found = verdict(Faulty())
    assert [row.feature for row in found.faults] == ["prefix"]
    assert found.spread is not None
    assert found.tolerance == pytest.approx(3 * found.spread)


def test_few_rows_are_told_as_such() -> None:
    """Without batches nothing tells kernels from decoding that is wrong: nobody is accused, and nothing held."""
    row = next(row for row in verdict(engines.Kernels(batches=False)).rows if row.feature == "steps")
    assert row.state == "spread"
    assert "wherever the last piece has one row" in row.words()


@pytest.mark.parametrize("build", [engines.WrongInOnePiece, engines.WithoutInside])
def test_the_prompt_in_one_piece_is_accused_where_it_is_what_is_wrong(build) -> None:
    """The lengths that are wrong are named, not the sound ones, and no clean way of feeding beside them."""
    found = verdict(build())
    (row,) = found.faults
    assert row.feature == "prefill"
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.stride) == ("length", 32)
    assert row.pattern.residues == tuple(range(1, 32))
    assert row.says == "a prompt of just this length against the same tokens one by one"
    assert "which differs by itself" in next(row.note for row in found.rows if row.feature == "parts")


def test_without_a_third_reading_both_sides_are_named() -> None:
    """An engine that reads in one piece and from a warm cache only."""

    class Two(RoundsHits):
        def inside(self, prompt, start):
            return super(Toy, self).inside(prompt, start)

        def in_parts(self, prompt, cuts, new):
            return super(Toy, self).in_parts(prompt, cuts, new)

    (row,) = verdict(Two()).faults
    assert "no third reading says which side is wrong" in row.words()


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_that_comes_and_goes_is_its_own(seed: int) -> None:
    """Every third restore is wrong while parts are clean: nothing inherits, and the rate is told."""
    (row,) = verdict(engines.EveryThirdRestore(), seed).faults
    assert row.feature == "restore"
    assert "it comes and goes: 8 of 24 readings anew" in row.words()


def test_inheriting_needs_a_base_that_was_seen_to_fail() -> None:
    """A lost tail is the parts' fault, and what is read in parts fails with it."""
    found = verdict(LosesTail())
    assert [row.feature for row in found.faults] == ["parts"]
    for row in found.rows:
        assert row.state != "inherits" or "prefill in two parts" in row.note


def test_a_first_prompt_that_stands_alone_is_a_fault() -> None:
    """Which call differs from which is told; all other rows are judged by what remains."""
    found = verdict(engines.FirstPromptAlone())
    (row,) = found.faults
    assert row.feature == "repeat"
    assert row.failed == 1
    assert "its first call differs from its second" in found.sentence
    assert states(found)["parts"] == "holds"


def test_first_calls_that_all_stand_alone_are_a_fault() -> None:
    """And nothing holds above such a floor."""
    found = verdict(engines.FirstOfEach())
    (row,) = found.faults
    assert row.feature == "repeat"
    assert "the first call of a prompt differs from the second and the third" in row.words()
    assert "holds" not in states(found).values()


def test_calls_that_remember_a_longer_prompt_are_a_fault() -> None:
    """A cache that is not cleared beyond the new prompt's length."""

    class Leaks(Toy):
        last = ()

        def whole(self, prompt, new):
            left, self.last = self.last[len(prompt) :], prompt
            return self.go_on(prompt, new, left[:1] + prompt)

    (row,) = verdict(Leaks(), features=["repeat"]).faults
    assert "after a longer prompt" in row.words()


@pytest.mark.parametrize("lossy", ["quantised", "kivi", "snapkv"])
def test_a_lossy_cache_is_judged_by_what_it_still_must_do(lossy: str) -> None:
    """Decoding differs by design; restoring must equal reading in the same parts."""
    found = verdict(engines.LossyCache(), lossy=lossy)
    assert not found.faults
    assert {name for name, state in states(found).items() if state == "lossy"} == {
        "parts",
        "chunks",
        "steps",
        "decode",
    }
    assert {states(found)[name] for name in ("prefill", "prefix", "restore", "batch")} == {"holds"}
    (row,) = verdict(engines.LossyCache(leaks=True), lossy=lossy).faults
    assert row.feature == "restore"


def test_a_lossy_cache_that_nobody_told_of_hints_at_it() -> None:
    """The row says how the rest is judged."""
    assert "--lossy" in verdict(engines.LossyCache()).sentence


def test_techniques_lose_in_their_own_way() -> None:
    """A sparse prefill differs in itself; unknown names are refused."""
    assert (kind_of("kivi"), kind_of("streaming_llm"), kind_of("minference")) == (
        "quantised",
        "evicting",
        "sparse",
    )
    assert "prefill" in must_differ("xattention")
    assert not must_differ(None)
    with pytest.raises(UsageError, match="zip"):
        must_differ("zip")


def test_the_smallest_prompt_tells_what_it_was_compared_with() -> None:
    """The tokens behind it in the longer prompt, and a neighbour in a batch."""

    class Wrong(Toy):
        def whole(self, prompt, new):
            return self.go_on(prompt, new, prompt[1:] if len(prompt) == 37 else prompt)

        def in_parts(self, prompt, cuts, new):
            return super(Toy, self).in_parts(prompt, cuts, new)

    (row,) = verdict(Wrong(), features=["prefill"]).faults
    assert row.smallest is not None
    assert len(row.smallest.prompt_ids) == 37
    assert row.smallest.other_ids
    assert f"before {len(row.smallest.other_ids)} more in the longer one" in row.words()


def test_log_probabilities_are_judged_by_their_size() -> None:
    """Larger ones are rounded by more."""
    small, large = Toy(), Toy()
    large.readout = large.readout * 3
    assert verdict(large, features=["repeat"]).tolerance > 2 * verdict(small, features=["repeat"]).tolerance
    assert np.isclose(verdict(small, features=["repeat"]).floor, 0)
