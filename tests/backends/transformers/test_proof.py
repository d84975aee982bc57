"""A model is read in a way that is shown to be sound, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BambaConfig,
    BambaForCausalLM,
    BertConfig,
    BertLMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.errors import UsageError
from phasescope.records import Trial
from phasescope.text.synthetic import RetrievalVocabulary
from tests.builders.families import measured

IDS = RetrievalVocabulary.contiguous(8, 40, 40)
SMALL: dict[str, Any] = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 3}


def bamba() -> Any:
    """Attention in the middle of two Mamba-2 layers, whose default positions ignore the cache."""
    mamba = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_indices": [1]}
    return BambaForCausalLM(BambaConfig(**SMALL, intermediate_size=64, **heads, **mamba))


def mamba() -> Any:
    """Has no attention heads at all."""
    return MambaForCausalLM(MambaConfig(**SMALL, state_size=8))


def mamba2() -> Any:
    """Has heads, but none of attention."""
    return Mamba2ForCausalLM(Mamba2Config(**SMALL, state_size=8, num_heads=8, head_dim=16, n_groups=1))


def llama() -> Any:
    """A plain transformer."""
    return LlamaForCausalLM(LlamaConfig(**SMALL, intermediate_size=64, num_attention_heads=4))


def questions(rng: np.random.Generator) -> list[Trial]:
    """Three questions after 40 shared tokens."""
    shared, *rest = (tuple(rng.integers(0, 128, n).tolist()) for n in (40, 6, 6, 6))
    return [Trial((*shared, *ids[:4]), ids[4:], ids[4:], 3, f"b{n}", "c", 0) for n, ids in enumerate(rest)]


def expected(model: Any, trial: Trial) -> float:
    """Log-probability of the answer by one forward without a cache."""
    ids = torch.tensor([trial.prompt_ids + trial.answer_ids[:-1]])
    with torch.no_grad():
        logprobs = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
    last = len(trial.prompt_ids) - 1
    return sum(float(logprobs[last + n, token]) for n, token in enumerate(trial.answer_ids))


@pytest.mark.parametrize("make", [llama, bamba, mamba, mamba2])
def test_answers_are_those_of_fresh_forwards(make, rng):
    """Whichever way is taken, to 1e-5 a token."""
    torch.manual_seed(0)
    model = make().eval()
    trials = questions(rng)
    replies = TransformersBackend(model, IDS, name="tiny").answer(trials)
    assert [reply.answer_logprob for reply in replies] == pytest.approx(
        [expected(model, trial) for trial in trials], abs=2e-5
    )
    assert all(len(reply.ids) == 2 for reply in replies)


class Forgetful(LlamaForCausalLM):
    """Takes its cache for empty: positions begin at 0 in every chunk."""

    def forward(self, *args: Any, position_ids: Any = None, **kwargs: Any) -> Any:
        """As a plain transformer, but for the positions."""
        ids = kwargs["input_ids"]
        return super().forward(*args, position_ids=torch.arange(ids.shape[1])[None], **kwargs)


def test_a_model_that_forgets_its_cache_is_read_fresh(rng, caplog):
    """It is said, it stands in run.json, and the answers are right."""
    torch.manual_seed(0)
    model = Forgetful(
        LlamaConfig(**SMALL, intermediate_size=64, num_attention_heads=4, initializer_range=0.3)
    ).eval()
    backend = TransformersBackend(model, IDS, name="tiny")
    trials = questions(rng)
    replies = backend.answer(trials)
    assert [reply.answer_logprob for reply in replies] == pytest.approx(
        [expected(model, trial) for trial in trials], abs=2e-5
    )
    assert "read alone and without a cache" in caplog.text
    assert "many questions after one prefill" in backend.describe()["read_alone"]


class Random(LlamaForCausalLM):
    """Draws something in its forward."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As a plain transformer, with noise."""
        out = super().forward(*args, **kwargs)
        out.logits = out.logits + torch.randn_like(out.logits)
        return out


def test_a_model_that_draws_is_refused(rng):
    """In one line, before anything is measured."""
    model = Random(LlamaConfig(**SMALL, intermediate_size=64, num_attention_heads=4))
    with pytest.raises(UsageError, match="answers the same prompt differently each time"):
        TransformersBackend(model, IDS, name="tiny").answer(questions(rng))


def test_a_sound_model_is_described_as_before():
    """So that its runs go on where they were begun."""
    assert "read_alone" not in TransformersBackend(llama(), IDS, name="tiny").describe()


def test_a_model_that_sees_later_tokens_is_refused(rng):
    """BERT as it is released: its forced answers would have read themselves."""
    config = BertConfig(**SMALL, num_attention_heads=4, intermediate_size=64, initializer_range=0.3)
    model = BertLMHeadModel(config)
    with pytest.raises(UsageError, match="reads tokens that come after the one it predicts"):
        TransformersBackend(model, IDS, name="tiny").answer(questions(rng))


def test_a_prompt_begins_at_the_positions_of_the_model():
    """RoBERTa's begin after its pad token's id, where `generate` itself would begin at 0."""
    found = measured("roberta")
    assert (found.way, found.difference is not None and found.difference < 1e-5) == ("alone", True)


class Narrow(LlamaForCausalLM):
    """Forgets the first tokens of its cache where the prompt is long, and only there."""

    beyond: int = 100

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As a plain transformer; a cache of more than so many tokens begins with zeros."""
        cache = kwargs.get("cache")
        if cache is not None and cache.get_seq_length() > self.beyond:
            for layer in cache.layers:
                layer.values[:, :, :20] = 0.0
        return super().forward(*args, **kwargs)


def narrow(beyond: int) -> Any:
    torch.manual_seed(0)
    model = Narrow(LlamaConfig(**SMALL, intermediate_size=64, num_attention_heads=4, initializer_range=0.3))
    model.beyond = beyond
    return model


def long_questions(rng: np.random.Generator, tokens: int) -> list[Trial]:
    shared, *rest = (tuple(rng.integers(0, 128, n).tolist()) for n in (tokens, 6, 6))
    return [Trial((*shared, *ids[:4]), ids[4:], ids[4:], 3, f"b{n}", "c", 0) for n, ids in enumerate(rest)]


def test_a_fault_that_begins_at_a_hundred_tokens_is_found_before_the_run(rng):
    """The probe's long prefix reaches beyond usual strides; every prompt is then read fresh."""
    backend = TransformersBackend(narrow(100), IDS, name="narrow")
    trials = long_questions(rng, 150)
    replies = backend.answer(trials)
    assert backend.proof.fault is not None
    assert [reply.answer_logprob for reply in replies] == pytest.approx(
        [expected(backend.model, trial) for trial in trials], abs=5e-5
    )


def test_a_fault_at_the_size_of_the_run_ends_it(rng):
    """Shorter prompts are answered; where the run's own are read wrongly, nothing is returned."""
    backend = TransformersBackend(narrow(400), IDS, name="narrow")
    assert len(backend.answer(long_questions(rng, 350))) == 2
    backend = TransformersBackend(narrow(400), IDS, name="narrow")
    with pytest.raises(UsageError, match=r"prompt of 604 tokens .* nats away from a fresh forward"):
        backend.answer(long_questions(rng, 600))
