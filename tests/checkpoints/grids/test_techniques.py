"""Grids that an engine brings along."""

import pytest

from phasescope import UnknownNameError
from phasescope.checkpoints.grids import TECHNIQUES, technique


def test_each_technique_is_a_target_with_its_source() -> None:
    """Strides where there are any; token-level ones are controls."""
    assert technique("chunkkv").target.strides == (20,)
    assert technique("kivi").target.verdict.endswith("(quantisation only)")
    assert {name for name in TECHNIQUES if technique(name).target.control} == {"snapkv", "streaming_llm"}
    assert all("source:" in technique(name).target.notes[-1] for name in TECHNIQUES)


def test_an_unknown_technique_is_told_the_nearest() -> None:
    """All names, and the likely one."""
    with pytest.raises(UnknownNameError, match="did you mean 'kivi'"):
        technique("kivvi")
