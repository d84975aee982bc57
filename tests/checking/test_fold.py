"""By what failures fold, with exact counts, and never from a single case."""

import pytest

from phasescope.checking.fold import fold, ranges


def facts(bad, lengths=range(1, 80), **more):
    return [({"length": n, **{k: f(n) for k, f in more.items()}}, bad(n)) for n in lengths]


@pytest.mark.parametrize(("stride", "residue"), [(2, 1), (4, 3), (12, 0), (16, 5), (32, 31)])
def test_one_residue_is_named_with_its_stride(stride: int, residue: int) -> None:
    """The smallest stride, and how many cases stand on either side."""
    found = fold(facts(lambda n: n % stride == residue))
    assert found is not None
    assert (found.stride, found.residues) == (stride, (residue,))
    assert found.failed + found.passed == 79
    assert f"≡ {residue} mod {stride}" in found.words()


def test_most_residues_are_told_by_the_others() -> None:
    """A cache that rounds to blocks fails everywhere but at whole blocks."""
    found = fold(facts(lambda n: n % 16 != 0))
    assert found is not None
    assert found.residues == tuple(range(1, 16))
    assert "is not ≡ 0 mod 16" in found.words()


def test_a_length_modulo_128_needs_two_periods() -> None:
    """One failure alone has no period."""
    assert fold(facts(lambda n: n == 37)) is None
    found = fold(facts(lambda n: n % 128 == 37, range(1, 260)))
    assert found is not None
    assert (found.stride, found.residues, found.failed) == (128, (37,), 2)


def test_the_coordinate_that_separates_is_chosen() -> None:
    """The cut, where the length says nothing."""
    found = fold(
        [({"length": n, "cut": c, "rest": n - c}, c % 4 == 1) for n in (40, 41) for c in range(1, 39)]
    )
    assert found is not None
    assert (found.coordinate, found.stride) == ("cut", 4)


def test_decoding_steps_may_be_the_exception() -> None:
    """A last piece of one token is another path of an engine; the sentence says so."""
    cases = [(40, c) for c in range(1, 40)] + [(9, 8), (10, 9), (11, 10), (12, 11)]
    found = fold([({"length": n, "cut": c, "rest": n - c}, c % 4 != 0 and n - c > 1) for n, c in cases])
    assert found is not None
    assert found.stride == 4
    assert "more than one token follows" in found.words()


def test_a_threshold_is_named_where_no_stride_is() -> None:
    """From one number of left pads on."""
    found = fold(facts(lambda n: n >= 30))
    assert found is not None
    assert (found.stride, found.least) == (None, 30)
    assert "30 or more" in found.words()


def test_failures_without_order_have_no_pattern() -> None:
    """Scattered lengths."""
    scattered = {3, 7, 20, 22, 31, 50, 64, 77}
    assert fold(facts(lambda n: n in scattered)) is None


def test_ranges_are_short() -> None:
    """Runs by their ends."""
    assert ranges([7, 1, 2, 3, 9, 10]) == "1 to 3, 7, 9 to 10"
