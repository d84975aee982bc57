"""A model's name means the same checkpoint in every command."""

import json
from pathlib import Path

import pytest

from phasescope.checkpoints import smollm2, zoo
from phasescope.checkpoints.card import read_card
from phasescope.checkpoints.resolve import LONGEST_PROMPT, ROOM, names, resolve
from phasescope.cli import run
from phasescope.errors import BrokenRecordError, UnknownNameError, UsageError


def test_zoo_names_and_folders_are_found(tmp_path: Path) -> None:
    """A folder is called by its last part; the zoo by its names."""
    assert resolve("w8s8-1kv").folder == zoo.folder("w8s8-1kv")
    assert resolve(str(tmp_path)).name == tmp_path.name
    assert set(names()) == {*zoo.names(), smollm2.NAME}


def test_the_reference_model_is_inspected_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`list` offers it, so every command takes it."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 2}))
    monkeypatch.setattr(smollm2, "folder", lambda: tmp_path)
    assert run(["inspect", smollm2.NAME]) == 0
    assert "no token grid" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["w8s8-1kw", "nowhere", "a\0b", "x" * 5000, ""])
def test_an_unknown_name_is_one_line(name: str) -> None:
    """With the known names, and the nearest of them where there is one."""
    with pytest.raises(UnknownNameError, match="w8s8-1kv") as caught:
        resolve(name) if name else resolve("no/such")
    assert "\n" not in str(caught.value)
    assert name != "w8s8-1kw" or "did you mean 'w8s8-1kv'?" in str(caught.value)


@pytest.mark.parametrize(
    "card",
    [
        "null",
        "[]",
        '{"pairs": 0}',
        '{"pairs": 1e400}',
        '{"kv_heads": "two"}',
        '{"vocabulary": {"fillers": [1]}}',
        '{"measured": {"prefix": {}}}',
        '{"measured": {"prefix": {"mean_accuracy": "high", "phase_sd": 0, "low": 0, "high": 0}}}',
        '{"measured": [1]}',
        '{"compression": {"compressor": "uniform"}}',
        '{"compression": {"compressor": "uniform", "width": 0, "stride": 8}}',
    ],
)
def test_a_damaged_card_is_one_line(tmp_path: Path, card: str) -> None:
    """The file and the field are named."""
    (tmp_path / "card.json").write_text(card)
    with pytest.raises(BrokenRecordError, match=r"card\.json") as caught:
        read_card(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_damaged_recall_is_named_to_the_field(tmp_path: Path) -> None:
    """Version 0.1 ended in a traceback where the card was shown."""
    (tmp_path / "card.json").write_text('{"measured": {"prefix": {"mean_accuracy": 2, "phase_sd": 0}}}')
    with pytest.raises(BrokenRecordError, match=r"card\.json: measured\.prefix\.mean_accuracy is 2"):
        read_card(tmp_path)


def test_fields_of_others_are_kept(tmp_path: Path) -> None:
    """In the card and in what it says of a protocol; a card of early versions lacks later fields."""
    recall = {"mean_accuracy": 0.5, "phase_sd": 0.1, "low": 0.0, "high": 0.2, "judge": "me"}
    (tmp_path / "card.json").write_text(json.dumps({"measured": {"prefix": recall}, "licence": "MIT"}))
    card = read_card(tmp_path)
    assert card is not None
    assert card.model_extra == {"licence": "MIT"}
    assert card.measured["prefix"].model_extra == {"judge": "me"}


def test_the_longest_prompt_is_the_configs(tmp_path: Path) -> None:
    """A nested config counts; one that does not say has the default."""
    found = {}
    for name, config in {
        "plain": {"max_position_embeddings": 512},
        "nested": {"text_config": {"max_position_embeddings": 77}},
        "silent": {},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        found[name] = resolve(str(tmp_path / name)).longest_prompt
    assert found == {"plain": 512, "nested": 77, "silent": LONGEST_PROMPT + ROOM}


def test_a_model_of_token_ids_has_no_tokenizer() -> None:
    """The line says what can be asked instead."""
    with pytest.raises(UsageError, match="in_sequence"):
        resolve("w8s8-1kv").tokenizer()
