"""The fixture that gates an engine's own tests."""

import pytest

from phasescope.checking import NotOfferedError
from phasescope.testing import EngineFaultError, assert_engine_invariant
from tests.builders.engines import build
from tests.checking.toy import LosesTail, Toy

SMALL = {"cases": 4, "sweep": 6, "longest": 24}


def test_a_clean_model_passes_by_itself() -> None:
    """Strides are read from its config."""
    verdict = assert_engine_invariant(build("ours"), features=["parts"], **SMALL)
    assert verdict.strides == (4,)


def test_a_faulty_engine_fails_with_the_verdict() -> None:
    """As an assertion; a known fault passes."""
    with pytest.raises(EngineFaultError, match="prefill in two parts fails"):
        assert_engine_invariant(LosesTail(), strides=[4], **SMALL)
    assert assert_engine_invariant(LosesTail(), strides=[4], known={"parts"}, **SMALL).faults


def test_the_plug_in_gives_the_fixture(request: pytest.FixtureRequest) -> None:
    """Installed by its entry point, or named with -p."""
    manager = request.config.pluginmanager
    if not manager.has_plugin("phasescope") and not manager.has_plugin("phasescope.testing.pytest_plugin"):
        pytest.skip("the package was installed before it had the plug-in; install it again")
    check = request.getfixturevalue("phasescope_check")
    with pytest.raises(EngineFaultError):
        check(LosesTail(), strides=[4], **SMALL)


def test_an_engine_that_offers_little_is_not_decided() -> None:
    """Rather than clean."""

    class Bare(Toy):
        def in_parts(self, *args):
            raise NotOfferedError("needs pieces")

    assert assert_engine_invariant(Bare(), strides=[4], **SMALL).decision == "not decidable with this access"
