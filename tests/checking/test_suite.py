"""The suite on an engine of a few lines: faults are found and named, clean and tied engines are not accused."""

import pytest

from phasescope import UsageError
from phasescope.checking import check

from .toy import LosesTail, RoundsHits, Toy, WrongAtLength


def states(verdict) -> dict[str, str]:
    return {row.feature: row.state for row in verdict.rows}


def test_a_clean_engine_holds_everywhere() -> None:
    """What it does not offer is not decided, with what would decide it."""
    verdict = check(Toy(), strides=[4], sweep=40, longest=60)
    found = states(verdict)
    assert {
        found[name] for name in ("repeat", "prefill", "parts", "chunks", "steps", "decode", "prefix")
    } == {"holds"}
    assert found["crop"] == found["restore"] == "hidden"
    assert verdict.decision == "not decidable with this access"
    assert "needs to take tokens back" in verdict.sentence


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_tail_is_found_with_its_stride_and_shrunk(seed: int) -> None:
    """It fails where the cut is not a multiple of four; three tokens are enough to show it."""
    verdict = check(LosesTail(), strides=[4], seed=seed, sweep=20, longest=60)
    assert [row.feature for row in verdict.faults] == ["parts"]
    (row,) = verdict.faults
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.stride, row.pattern.residues) == ("cut", 4, (1, 2, 3))
    assert row.smallest is not None
    assert len(row.smallest.prompt_ids) <= 4
    assert states(verdict)["chunks"] == "inherits"
    assert verdict.sentence.startswith("engine fault: prefill in two parts fails exactly where")


def test_rounded_hits_are_found_with_their_block() -> None:
    """Only a warm prefix cache is at fault."""
    verdict = check(RoundsHits(), strides=[4], sweep=20, longest=90)
    (row,) = verdict.faults
    assert row.feature == "prefix"
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.stride) == ("cut", 16)
    assert row.pattern.residues == tuple(range(1, 16))


def test_one_length_of_128_is_found_and_nobody_else_is_accused() -> None:
    """All other ways of reading agree with each other at that length."""
    verdict = check(WrongAtLength(), strides=[37], sweep=256)
    (row,) = verdict.faults
    assert row.feature == "prefill"
    assert row.pattern is not None
    assert (row.pattern.coordinate, row.pattern.stride, row.pattern.residues) == ("length", 128, (37,))
    assert row.smallest is not None
    assert len(row.smallest.prompt_ids) == 37


def test_equal_scores_that_can_be_seen_are_settled() -> None:
    """What differs through them alone is undecided, and no fault."""
    verdict = check(Toy(tied=True), strides=[4], sweep=20, longest=60)
    assert not verdict.faults
    assert states(verdict)["prefill"] == "ties"
    assert verdict.equal_scores > 0


def test_a_fault_beside_equal_scores_is_still_found() -> None:
    """Settled, what remains is the engine's."""
    verdict = check(LosesTail(tied=True), strides=[4], sweep=20, longest=60)
    assert [row.feature for row in verdict.faults] == ["parts"]


def test_equal_scores_that_cannot_be_seen_accuse_nobody() -> None:
    """Without a look at the scores, differences without a pattern are undecided."""
    verdict = check(Toy(tied=True, visible=False), strides=[4], sweep=20, longest=60)
    assert not verdict.faults
    assert states(verdict)["prefill"] == "ties"


def test_a_pattern_is_evidence_even_where_scores_cannot_be_seen() -> None:
    """Equal scores follow no residue, and the ways that use no cache are quiet."""
    verdict = check(LosesTail(visible=False), strides=[4], sweep=20, longest=60)
    assert [row.feature for row in verdict.faults] == ["parts"]


def test_what_is_smaller_than_the_floor_is_not_judged() -> None:
    """An engine whose equal calls differ by 0.1 is not accused of 0.1."""
    verdict = check(Toy(noise=0.05, visible=False), strides=[4], sweep=20, longest=60)
    assert not verdict.faults
    assert verdict.floor > 0.01
    assert verdict.tolerance >= 4 * verdict.floor
    assert states(verdict)["repeat"] == "unstable"


def test_the_same_seed_gives_the_same_verdict() -> None:
    """Byte for byte."""
    first, second = (check(LosesTail(), strides=[4], seed=3, sweep=20, longest=60) for _ in range(2))
    assert first.model_dump_json() == second.model_dump_json()


def test_single_features_can_be_asked() -> None:
    """The floor is always measured first; unknown names are refused with the known ones."""
    verdict = check(Toy(), strides=[4], features=["parts"], longest=40)
    assert [row.feature for row in verdict.rows] == ["repeat", "parts"]
    with pytest.raises(UsageError, match="unknown invariance 'part'; known: repeat"):
        check(Toy(), strides=[4], features=["part"])


def test_a_verdict_shows_itself_in_a_line_and_in_a_notebook() -> None:
    """The decision and a state per invariance; what an engine wrote is text, not markup."""
    verdict = check(LosesTail(), strides=[4], features=["parts"], sweep=20, longest=60)
    assert repr(verdict) == "<Verdict 'engine fault' (repeat: holds, parts: engine fault)>"
    html = verdict.model_copy(update={"sentence": "<b>"})._repr_html_()
    assert "&lt;b&gt;" in html
    assert html.count("<tr>") == 3
