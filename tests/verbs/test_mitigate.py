"""Mitigations of a model that a run has measured, whatever its protocol."""

from __future__ import annotations

from pathlib import Path

from phasescope.runs import read_description
from phasescope.statistics.profile import Profile, write_profiles
from phasescope.verbs.measure import measure
from phasescope.verbs.mitigate import mitigate
from tests.verbs.test_measure import SMALL, dense  # noqa: F401  # a fixture

PROFILE = Profile(
    condition="dense",
    stride=4,
    accuracy=(0.9, 0.5, 0.6, 0.7),
    low=(0.8, 0.4, 0.5, 0.6),
    high=(1.0, 0.6, 0.7, 0.8),
    sensitive=True,
    n_blocks=4,
    n_clusters=2,
)


def test_a_needle_run_is_mitigated_with_its_own_tokenizer(tmp_path: Path, dense: Path) -> None:  # noqa: F811
    """Its protocol is made again from run.json, and asks other contexts."""
    measure(
        str(dense), protocol="needle", out=tmp_path / "run", **{**SMALL, "prompt_tokens": 200, "pairs": 6}
    )
    write_profiles(tmp_path / "run" / "profile.json", [PROFILE])
    said = mitigate(tmp_path / "run", contexts=4)
    assert (tmp_path / "run" / "mitigate" / "mitigation.json").is_file(), said
    first = read_description(tmp_path / "run" / "mitigate").conditions[0]
    assert first.protocol.settings["contexts"] == 4
    assert first.protocol.settings["tokenizer"] is not None
