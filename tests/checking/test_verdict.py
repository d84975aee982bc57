"""Who is at fault, from rows and what was measured."""

import pytest

from phasescope.checking.verdict import Effect, Outcome, decide


def row(feature: str, state: str, **more) -> Outcome:
    return Outcome(feature=feature, says=f"way {feature}", state=state, cases=4, largest_gap=1e-6, **more)


def effect(state: str) -> Effect:
    return Effect(
        run="r",
        condition="a",
        state=state,
        period=4 if state == "sensitive" else None,
        coordinate="source",
        sentence="x",
    )


HOLDS = (row("parts", "holds"), row("crop", "absent", note="no crop"))


@pytest.mark.parametrize(
    ("rows", "measured", "decision"),
    [
        (HOLDS, None, "neither"),
        (HOLDS, "flat", "neither"),
        (HOLDS, "sensitive", "model property"),
        (HOLDS, "undecided", "not decidable with this access"),
        ((*HOLDS, row("prefix", "hidden", note="n")), "sensitive", "not decidable with this access"),
        ((*HOLDS, row("prefix", "ties", note="n")), None, "not decidable with this access"),
        ((*HOLDS, row("prefix", "inherits", failed=4, note="n")), None, "not decidable with this access"),
        ((*HOLDS, row("prefix", "fault", failed=4)), "sensitive", "engine fault"),
        ((*HOLDS, row("prefix", "fault", failed=4), row("batch", "hidden", note="n")), None, "engine fault"),
    ],
)
def test_the_verdict(rows, measured, decision) -> None:
    """A fault outranks everything; a model property needs every way to hold and an effect."""
    found, sentence = decide(rows, measured and effect(measured))
    assert found == decision
    assert sentence.startswith(decision.split(" with")[0])


def test_an_open_row_says_what_would_decide_it() -> None:
    """In the verdict's sentence and in its own line."""
    open_ = row("prefix", "hidden", note="needs cache_salt")
    assert "prefix: needs cache_salt" in decide((*HOLDS, open_), None)[1]
    assert open_.words() == "needs cache_salt"


def test_a_fault_without_a_pattern_tells_its_lengths() -> None:
    """Not more than a line holds."""
    bad = row("parts", "fault", failed=3, lengths=tuple(range(20)))
    assert "in 3 of 4 cases, at lengths 0, 1, 2, 3, 4, 5, 6, 7 and 12 more" in bad.words()
