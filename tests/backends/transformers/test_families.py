"""Every causal family of `transformers`: right numbers, or none."""

import pytest

from tests.builders.families import CAUSAL, TOLERANCE, measured

QUICK = {
    "llama": "shared",
    "bamba": "shared",
    "mamba2": "shared",
    "gemma3": "shared",
    "gemma4_text": "shared",
    "deepseek_v3": "shared",
    "deepseek_v4": "shared",
    "qwen3_next": "shared",
    "falcon_h1": "shared",
    "mamba": "alone",
    "recurrent_gemma": "alone",
    "roberta": "alone",
    "rwkv": "alone",
    "xlm": "refused",
}
"""One of each kind, and how it is read."""
NOT_BUILT = {"gemma3n", "gemma4_assistant"}
"""Need a package of images that the tests do without, or have a default configuration that their own class refuses."""


@pytest.mark.parametrize(("kind", "way"), QUICK.items())
@pytest.mark.filterwarnings("ignore")
def test_one_of_each_kind(kind: str, way: str) -> None:
    """Shared or alone, and then equal to fresh forwards, or refused."""
    found = measured(kind)
    assert found.way == way, found
    assert (found.difference is None) is (way == "refused")
    assert found.difference is None or found.difference <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.filterwarnings("ignore")
def test_every_family_is_equal_to_fresh_forwards_or_refused(kind: str) -> None:
    """Never silently different, never an exception that nobody foresaw."""
    found = measured(kind)
    assert (found.way == "not built") is (kind in NOT_BUILT), found
    assert found.difference is None or found.difference <= TOLERANCE, found
    assert bool(found.why) is (found.way != "shared")
