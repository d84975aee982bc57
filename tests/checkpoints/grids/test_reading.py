"""From a path to a target: folders, files, names on the hub, and what is none of these."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phasescope import PhasescopeError, UsageError
from phasescope.checkpoints.grids import families, read_target


def test_a_folder_and_its_config_are_the_same_target(tmp_path: Path) -> None:
    """Either may be given."""
    (tmp_path / "config.json").write_text('{"model_type": "moba"}')
    assert read_target(tmp_path) == read_target(tmp_path / "config.json")
    assert read_target(str(tmp_path)).source == str(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b'{"model_type": NaN}', "no model_type"),
        (b"[" * 100_000, "not JSON"),
        (b'{"model_type": "moba", "moba_topk": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"model_type": "moba", "moba_topk": 1e400}', "moba_topk is inf"),
        (b" " * (16 * 2**20 + 1), "more than 16,777,216 bytes"),
    ],
)
def test_a_config_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    """Empty, cut, binary, deep, huge."""
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(PhasescopeError, match=said) as caught:
        read_target(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_path_that_holds_nothing_is_one_line(tmp_path: Path) -> None:
    """What was given, what is allowed."""
    with pytest.raises(UsageError, match=r"holds no config\.json"):
        read_target(tmp_path)
    for given in ("nowhere", "a/b/c", "../x", "\0", "x" * 5000, ""):
        with pytest.raises(UsageError) as caught:
            read_target(given if given else tmp_path / "")
        assert len(str(caught.value)) < 400


def hub(download: Any, endpoint: str = "http://localhost") -> SimpleNamespace:
    """The hub's client, as far as it is used."""
    return SimpleNamespace(hf_hub_download=download, constants=SimpleNamespace(ENDPOINT=endpoint))


def test_a_name_on_the_hub_is_fetched_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the config, by the hub's own client."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "moba"}))
    asked: list[Any] = []

    def download(*given: Any, **settings: Any) -> str:
        asked.append(given)
        return str(tmp_path / "config.json")

    monkeypatch.setitem(sys.modules, "huggingface_hub", hub(download))
    assert read_target("owner/name").family == "MoBA (fla)"
    assert asked == [("owner/name", "config.json")]


def test_a_hub_that_cannot_be_asked_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, or no client: what to do instead."""

    def download(*_: Any, **__: Any) -> str:
        raise ConnectionError("no route\nand a second line")

    monkeypatch.setitem(sys.modules, "huggingface_hub", hub(download))
    with pytest.raises(UsageError, match=r"could not be fetched from the hub \(no route\)") as caught:
        read_target("owner/name")
    assert "\n" not in str(caught.value)
    for proxy in ("http_proxy", "https_proxy", "all_proxy", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(proxy, raising=False)
        monkeypatch.delenv(proxy.upper(), raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub(pytest.fail, "http://nowhere.invalid"))
    with pytest.raises(UsageError, match="could not be fetched"):
        read_target("owner/name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match="without huggingface_hub"):
        read_target("owner/name")


def test_every_family_reads_its_own_example() -> None:
    """The table of the documentation; a family with fields of a grid has one in its example."""
    for family, target in families():
        assert target.family == family.name
        gridless = {
            "token-level top-k",
            "Doge",
            "Step-3.7",
            "recurrences",
            "short convolutions",
            "exact bands",
        }
        assert target.control is (family.name in gridless | {"mixers", "dense"})
