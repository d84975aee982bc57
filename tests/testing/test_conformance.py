"""The conformance suite accepts our compressors and catches planted faults."""

import pytest
import torch

from phasescope import UsageError
from phasescope.catalog import COMPRESSORS
from phasescope.compressors import Entries
from phasescope.compressors.scalar_gate import ScalarGate
from phasescope.testing import LAWS, LawBrokenError, check_compressor

GRIDS = [
    {"width": 4, "stride": 4},
    {"width": 8, "stride": 4},
    {"width": 8, "stride": 4, "shift": 4},
    {"width": 12, "stride": 5, "shift": ((0, 3), (11, 4))},
    {"width": 3, "stride": 7, "shift": 1},
]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("compressor", ["uniform", "scalar_gate", "vector_gate"])
def test_shipped_compressors_keep_every_law(compressor, grid):
    """Every law, on plain, overlapping, shifted, per-head and gapped grids."""
    assert check_compressor(compressor, **grid) == dict.fromkeys(LAWS, "kept")


@pytest.mark.parametrize("visibility", ["closing", "next"])
@pytest.mark.parametrize(
    ("compressor", "plan"),
    [
        ("scalar_gate", {"width": 8, "stride": 4, "shift": ((0, 3), (7, 2))}),
        ("vector_gate", {"width": 3, "stride": 7, "shift": 1}),
        ("dynamic", {"width": 8, "stride": 5}),
        ("csa", {"width": 8, "stride": 4, "shift": 4, "heads": 1, "tail": 4, "binding": True}),
    ],
    ids=str,
)
def test_the_laws_hold_whoever_first_reads_an_entry(compressor, plan, visibility):
    """The token that closes a window, or the next one; what a method declares to break stays declared."""
    verdicts = check_compressor(compressor, **plan, visibility=visibility)
    assert {law for law, verdict in verdicts.items() if verdict != "kept"} == set(
        COMPRESSORS.load(compressor).breaks
    )


DEEPSEEK = {"heads": 1, "tail": 5, "binding": True, "sink": True, "rotary": 0.5}


@pytest.mark.parametrize(
    ("compressor", "plan"),
    [
        ("csa", {"width": 8, "stride": 4, "shift": 4}),
        (
            "csa",
            {"width": 6, "stride": 3, "shift": 3, "settings": {"topk": 40, "index_heads": 2, "index_dim": 8}},
        ),
        ("hca", {"width": 5, "stride": 5}),
        ("hca", {"width": 1, "stride": 1}),
    ],
    ids=str,
)
def test_deepseek_v4_keeps_every_law_but_the_limit(compressor, plan):
    """CSA and HCA make entries from their own projections, and say so."""
    verdicts = check_compressor(compressor, **plan, **DEEPSEEK)
    assert verdicts.pop("limit") == "entries are made from projections of their own"
    assert set(verdicts.values()) == {"kept"}


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_binding_tail_and_sink_keep_the_laws(heads):
    """The other axes of a compression break no law, with 1, 2 or 4 KV heads."""
    plan = {"width": 8, "stride": 6, "tail": 3, "binding": True, "rotary": 0.5, "sink": True}
    assert check_compressor("scalar_gate", heads=heads, **plan) == dict.fromkeys(LAWS, "kept")


class PeeksAhead(ScalarGate):
    """Lets a token's state depend on the next token."""

    def state_BHTG(self, hidden_BTE):
        return super().state_BHTG(hidden_BTE + hidden_BTE.roll(-1, dims=1))


class ForgetsTail(ScalarGate):
    """Claims that tokens are covered before their window closes."""

    def entries(self, key_BHTD, value_BHTD, state_BHTG):
        e = super().entries(key_BHTD, value_BHTD, state_BHTG)
        return Entries(e.key_BHND, e.value_BHND, e.position_BHN, e.last_token_BHN, e.visible_from_BHT - 1)


class CountsWindows(ScalarGate):
    """Scales entries by their index, so that padding changes them."""

    def entries(self, key_BHTD, value_BHTD, state_BHTG):
        e = super().entries(key_BHTD, value_BHTD, state_BHTG)
        index = torch.arange(1, e.key_BHND.shape[2] + 1, dtype=e.key_BHND.dtype)[:, None]
        return Entries(e.key_BHND * index, e.value_BHND, e.position_BHN, e.last_token_BHN, e.visible_from_BHT)


SCALED = "entries are scaled by their index"


class Declares(CountsWindows):
    """The same fault, declared."""

    breaks = {"period": SCALED, "limit": SCALED}


class Misspells(ScalarGate):
    """Declares a law that does not exist."""

    breaks = {"perod": "a slip"}


@pytest.mark.parametrize(
    ("compressor", "law"), [(PeeksAhead, "causal"), (ForgetsTail, "coverage"), (CountsWindows, "period")]
)
def test_a_planted_fault_is_named_by_its_law(compressor, law):
    """Each fault breaks the law that it was planted against, and that one is reported."""
    with pytest.raises(LawBrokenError, match=f"law '{law}'"):
        check_compressor(compressor)


def test_a_declared_break_is_reported_with_its_reason_and_the_other_laws_still_hold():
    """The suite goes on behind a declared break."""
    verdicts = check_compressor(Declares)
    assert verdicts.pop("period") == verdicts.pop("limit") == SCALED
    assert set(verdicts.values()) == {"kept"}


def test_a_declaration_that_names_no_law_is_refused():
    """A misspelt declaration must not silence anything."""
    with pytest.raises(UsageError, match="perod"):
        check_compressor(Misspells)
