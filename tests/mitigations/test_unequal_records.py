"""Records of unequal lengths: the same with and without pads."""

import numpy as np
import pytest

from phasescope.errors import UsageError
from phasescope.mitigations import Records
from phasescope.text.synthetic import RetrievalVocabulary

from ..mitigations.test_pack import profile

VOCABULARY = RetrievalVocabulary.contiguous(16, 40, 40)
STRONG_3 = profile(0.2, 0.2, 0.2, 0.9)
SMALL = {"pairs": 6, "contexts": 3, "residues": 8, "spread": 4}


def trials(**settings: object) -> list:
    protocol = Records(**{**SMALL, "profile": STRONG_3, **settings})
    rng = np.random.default_rng(5)
    return [trial for batch in protocol.batches(VOCABULARY, rng) for trial in batch]


def records_of(trial: object) -> list[int]:
    """Keys and values in their order."""
    return [token for token in trial.prompt_ids if token >= 16]


@pytest.mark.parametrize("pads", ["pack", "random"])
def test_pads_change_nothing_but_positions(pads: str) -> None:
    """Every context: the same records, questions and answers."""
    for plain, padded in zip(trials(), trials(pads=pads), strict=True):
        assert (plain.block, plain.layout, plain.answer_ids) == (
            padded.block,
            padded.layout,
            padded.answer_ids,
        )
        assert records_of(plain) == records_of(padded)


def test_every_layout_moves_each_key_to_another_residue_and_packing_brings_all_to_the_strong_one() -> None:
    """The source position names the key's first token."""
    plain, packed = trials(), trials(pads="pack")
    for trial in (*plain, *packed):
        assert trial.prompt_ids[trial.source_position] == trial.prompt_ids[-1]
    assert {trial.source_position % 4 for trial in packed} == {3}
    residues: dict[str, set[int]] = {}
    for trial in plain:
        residues.setdefault(trial.block, set()).add(trial.source_position % 8)
    assert all(found == set(range(8)) for found in residues.values())


def test_random_pads_are_as_many_as_packing_takes() -> None:
    """Prompt by prompt."""
    packed, random = trials(pads="pack"), trials(pads="random")
    assert [len(trial.prompt_ids) for trial in packed] == [len(trial.prompt_ids) for trial in random]
    assert [trial.prompt_ids for trial in packed] != [trial.prompt_ids for trial in random]


def test_the_profile_is_part_of_the_description() -> None:
    """As plain JSON values."""
    settings = Records(**SMALL, pads="pack", profile=STRONG_3).describe()["settings"]
    assert settings["profile"]["accuracy"] == [0.2, 0.2, 0.2, 0.9]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"pads": "pack", "profile": None}, "need a profile"),
        ({"spread": 0}, "spread"),
        ({"pads": "all"}, "none, pack"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, said: str) -> None:
    """With what is allowed."""
    with pytest.raises(UsageError, match=said):
        Records(**{**SMALL, **settings})
