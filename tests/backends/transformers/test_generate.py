"""A trial says how far to continue; the model says where it stops."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.records import Trial
from phasescope.text.synthetic import RetrievalVocabulary


@pytest.fixture(scope="module")
def backend():
    """A small model that was never trained."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        bos_token_id=None,
        eos_token_id=None,
    )
    return TransformersBackend(
        Qwen3ForCausalLM(config), RetrievalVocabulary.contiguous(8, 8, 8), name="small", grids=[]
    )


def trial(layout, *, generate=None, answer=(), prompt=(5, 6, 7, 8)):
    """One prompt, which differs by layout."""
    return Trial((layout, *prompt), answer, (), 1, "b", "c", layout, generate)


def greedy(backend, prompt, count):
    """The plain reference: one whole forward per token."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(backend.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def test_a_trial_without_an_answer_is_continued_and_has_no_log_probability(backend):
    """As far as it asks, token by token as the model does without a cache."""
    trials = [trial(layout, generate=7) for layout in range(3)]
    for asked, reply in zip(trials, backend.answer(trials), strict=True):
        assert reply.ids == greedy(backend, asked.prompt_ids, 7)
        assert reply.answer_logprob is None


def test_an_answer_may_be_shorter_than_the_continuation(backend):
    """Its log-probability is that of its own tokens, whatever is generated beyond."""
    short = backend.answer([trial(1, answer=(9, 10))])[0]
    longer = backend.answer([trial(1, answer=(9, 10), generate=6)])[0]
    assert longer.answer_logprob == pytest.approx(short.answer_logprob, abs=1e-6)
    assert longer.ids[:2] == short.ids
    assert len(longer.ids) == 6


def test_nothing_is_told_of_what_comes_after_the_token_that_stops(backend, monkeypatch):
    """Each row stops at its own place; answers of a fixed length are not cut."""
    trials = [trial(layout, generate=8) for layout in range(4)]
    whole = [greedy(backend, asked.prompt_ids, 8) for asked in trials]
    stops = (whole[0][3], 63)
    monkeypatch.setitem(backend.__dict__, "_stops", stops)
    for ids, reply in zip(whole, backend.answer(trials), strict=True):
        before = next((place for place, token in enumerate(ids) if token in stops), len(ids))
        assert tuple(token for token in reply.ids if token not in stops) == ids[:before]
    fixed = backend.answer([trial(0, answer=(9,) * 8)])[0]
    assert len(fixed.ids) == 8


def test_trials_that_ask_for_different_lengths_share_a_batch_without_harm(backend):
    """They are read in groups, and every reply is that of the trial alone."""
    trials = [
        trial(0, generate=2),
        trial(0, generate=5),
        trial(0, answer=(9,)),
        trial(0, answer=(9,), generate=1),
    ]
    together = backend.answer(trials)
    for asked, reply in zip(trials, together, strict=True):
        alone = backend.answer([asked])[0]
        assert reply.ids == alone.ids
        assert (reply.answer_logprob is None) == (alone.answer_logprob is None)
