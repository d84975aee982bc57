"""A row of a recipe: trained, measured, kept, and never done twice."""

import json
import sys

import numpy as np
import pytest
from research.row import run_row

from phasescope.models import Compression
from phasescope.text.corpus import build
from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import RetrievalTask, Text, Training
from phasescope.verbs import write_card


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["fold", "every", "four", "tokens"], 40)) for _ in range(60)]
    return build(texts, 260, tmp_path_factory.mktemp("text") / "corpus", held_out=0.2)


def test_a_row_is_kept_with_what_the_table_needs_and_made_again_to_the_same_bytes(
    corpus, tmp_path, monkeypatch
):
    """Findings under both paddings, held-out loss, looks; a second call reads what is kept."""
    monkeypatch.setattr(sys.modules[write_card.__module__], "DEMO_CONTEXTS", 6)
    first = corpus.facts.vocabulary
    settings = Training(
        compression=Compression(compressor="scalar_gate", width=4, stride=4),
        task=RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(4, 8, 8, first), fillers=8),
        text=Text(corpus=corpus.facts.digest, vocabulary=first, rows=2, tokens=16),
        hidden_size=16,
        heads=1,
        kv_heads=1,
        head_dim=16,
        feed_forward=16,
        rows=4,
        max_pairs=4,
        steps=6,
        raw_steps=2,
        shared_start=True,
    )
    keep = tmp_path / "kept" / "w4s4-0.json"
    keep.parent.mkdir()
    found = run_row("w4s4", settings, corpus, tmp_path / "run", keep, command="made here")
    assert {"mean_accuracy", "phase_sd", "period", "phase_rate"} <= {f["name"] for f in found["prefix"]}
    assert len([f for f in found["in_sequence"] if f["name"] == "phase_rate"]) == 4
    assert [look["step"] for look in found["curve"]] == list(range(1, 7))
    assert np.shape(found["curve"][-1]["gates"]) == (2, 1, 4)
    assert 0 < found["held_out"] < 10
    assert json.loads((tmp_path / "run" / "card.json").read_text())["command"] == "made here"
    bytes_ = keep.read_bytes()
    assert run_row("w4s4", settings, corpus, tmp_path / "elsewhere", keep, command="") == json.loads(bytes_)
    assert not (tmp_path / "elsewhere").exists()
    keep.unlink()
    run_row("w4s4", settings, corpus, tmp_path / "run", keep, command="made here")
    assert keep.read_bytes() == bytes_
