"""One prefill for many questions gives what a fresh prefill per question gives."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from phasescope import Reply, Trial, UsageError, WindowGrid
from phasescope.backends.prefixes import contexts
from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.backends.transformers.load import folder_vocabulary
from phasescope.checkpoints import zoo
from phasescope.errors import PhasescopeError
from phasescope.protocols import InSequencePadding, PrefixPadding, QueryPadding
from tests.builders.tiny_models import GRIDS, MODELS, SHAPE, VOCABULARY, deepseek_v4, ours, qwen3

TOLERANCE = 1e-4  # of a log-probability in float32


@pytest.fixture(params=MODELS, scope="module")
def model(request: pytest.FixtureRequest) -> Any:
    """Each architecture, with random weights from one seed."""
    torch.manual_seed(0)
    return MODELS[request.param]()


def backend(model: Any, **settings: Any) -> TransformersBackend:
    """A backend over a model that is in memory."""
    return TransformersBackend(model, VOCABULARY, name="tiny", **settings)


def trials(kind: Any = PrefixPadding, answer: int = 1, **settings: Any) -> list[Trial]:
    """One context's questions in all layouts; longer answers go on with the value of the next record."""
    protocol = kind(**{"pairs": 9, "contexts": 1, "residues": 6, **settings})
    batch = next(protocol.batches(VOCABULARY, np.random.default_rng(1)))
    return [
        Trial(
            t.prompt_ids,
            t.answer_ids + t.candidate_ids[: answer - 1],
            t.candidate_ids,
            t.source_position,
            t.block,
            t.cluster,
            t.layout,
        )
        for t in batch
    ]


def assert_same(replies: list[Reply], reference: list[Reply]) -> None:
    """The same tokens, and every log-probability within the tolerance."""
    assert [reply.ids for reply in replies] == [reply.ids for reply in reference]
    for reply, other in zip(replies, reference, strict=True):
        assert reply.answer_logprob == pytest.approx(other.answer_logprob, abs=TOLERANCE)
        assert reply.candidate_logprobs == pytest.approx(other.candidate_logprobs, abs=TOLERANCE)
        assert reply.prompt_tokens == other.prompt_tokens


def fresh(model: Any, trial: Trial) -> Reply:
    """One forward of one prompt without any cache, written out, as the reference of the reference."""
    ids, answer = list(trial.prompt_ids), trial.answer_ids
    greedy: list[int] = []
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids + list(answer)]), use_cache=False).logits[0].double()
        logprobs = logits.log_softmax(-1)[len(ids) - 1 :]
        for _ in answer:
            greedy.append(
                int(model(input_ids=torch.tensor([ids + greedy]), use_cache=False).logits[0, -1].argmax())
            )
    total = sum(float(logprobs[step, token]) for step, token in enumerate(answer))
    return Reply(tuple(greedy), len(ids), total, tuple(logprobs[0, list(trial.candidate_ids)].tolist()))


@pytest.mark.parametrize("kind", [PrefixPadding, InSequencePadding, QueryPadding])
def test_a_shared_prefill_answers_as_one_prompt_per_question(model: Any, kind: Any) -> None:
    """Same greedy token, log-probabilities within 1e-4, on ours, on plain Qwen3 and on DeepSeek-V4."""
    asked = trials(kind)
    shared, single = backend(model), backend(model, share_prefix=False)
    assert_same(shared.answer(asked), single.answer(asked))
    assert single.tokens == sum(len(trial.prompt_ids) for trial in asked)
    contexts = {trial.layout: len(trial.prompt_ids) - 1 for trial in asked}
    assert shared.tokens == sum(contexts.values()) + len(asked)


@pytest.mark.parametrize("chunk", [1, 7, 16, 40])
def test_a_prefill_in_chunks_answers_as_one_in_a_piece(model: Any, chunk: int) -> None:
    """Up to rounding, on every kind of cache, for long and short suffixes, and for the same tokens."""
    asked = trials(answer=2)
    for share in (True, False):
        pieces = backend(model, prefill_chunk=chunk, share_prefix=share)
        whole = backend(model, prefill_chunk=10**6, share_prefix=share)
        assert_same(pieces.answer(asked[::5]), whole.answer(asked[::5]))
        assert (
            pieces.tokens == whole.tokens == sum(group.tokens for group in contexts(asked[::5], share=share))
        )


def test_chunks_end_at_the_same_positions_in_every_layout() -> None:
    """Multiples of the chunk, whatever the prompt's length: an artefact of length can't pass for a phase."""
    model = qwen3()
    forward, ends = model.forward, []

    def spy(*args: Any, **kwargs: Any) -> Any:
        held = 0 if kwargs["cache"] is None else kwargs["cache"].get_seq_length()
        ends.append((held, held + kwargs["input_ids"].shape[1]))
        return forward(*args, **kwargs)

    model.forward = spy
    asked = trials(QueryPadding, pairs=6)
    lengths = {len(trial.prompt_ids) for trial in asked}
    for share in (True, False):
        reading = backend(model, prefill_chunk=16, share_prefix=share)
        assert reading.proof.fault is None  # its probe is not of these lengths
        ends.clear()
        reading.answer(asked)
    for start, end in ends:
        assert end % 16 == 0 or end in lengths | {length - 1 for length in lengths}
        assert start // 16 == (end - 1) // 16


@pytest.mark.parametrize("max_tokens", [1, 10**6])
def test_a_trial_that_says_how_long_is_continued_so_long_or_to_the_stop(max_tokens: int) -> None:
    """The greedy continuation of a forward without cache, cut before the model's own stop token."""
    torch.manual_seed(0)
    model = qwen3()
    asked = [dataclasses.replace(trial, generate=6) for trial in trials()[:5]]
    long = backend(model, max_tokens=max_tokens).answer(asked)
    for trial, reply in zip(asked, long, strict=True):
        ids = list(trial.prompt_ids)
        for _ in range(6):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        assert reply.ids == tuple(ids[-6:])
    stop = long[0].ids[3]
    model.generation_config.eos_token_id = [stop]
    for cut, reply in zip(backend(model, max_tokens=max_tokens).answer(asked), long, strict=True):
        assert cut.ids == reply.ids[: reply.ids.index(stop) if stop in reply.ids else 6]
        assert cut.answer_logprob == pytest.approx(reply.answer_logprob, abs=TOLERANCE)


def test_a_trial_without_a_right_answer_has_no_log_probability() -> None:
    """What a scorer of text asks: only a continuation."""
    asked = [dataclasses.replace(t, generate=3, answer_ids=(), candidate_ids=()) for t in trials()[:3]]
    for reply in backend(qwen3()).answer(asked):
        assert (reply.answer_logprob, reply.candidate_logprobs, len(reply.ids)) == (None, None, 3)


@pytest.mark.parametrize("answer", [1, 3])
def test_replies_are_those_of_a_forward_without_cache(model: Any, answer: int) -> None:
    """Checked against a loop that uses neither batches nor caches, for one-token and longer answers."""
    asked = trials(answer=answer)[::5]
    assert_same(backend(model).answer(asked), [fresh(model, trial) for trial in asked])


@pytest.mark.parametrize("max_tokens", [1, 100, 400, 10**6])
def test_the_size_of_a_forward_changes_no_reply(model: Any, max_tokens: int) -> None:
    """One row at a time, some questions at a time, some contexts at a time, or all at once."""
    asked = trials(answer=2)
    small = backend(model, max_tokens=max_tokens)
    assert_same(small.answer(asked), backend(model).answer(asked))
    assert small.tokens == sum({t.layout: len(t.prompt_ids) - 1 for t in asked}.values()) + len(asked)


def test_prompts_that_differ_in_more_than_the_last_token_share_what_they_have(model: Any) -> None:
    """The prefix is the longest common one; suffixes of several tokens are read in one forward."""
    whole = trials()[:9]
    asked = [
        Trial((*t.prompt_ids[:-4], index, 1, 2, 3), (4,), (4, 5), 0, t.block, t.cluster, t.layout)
        for index, t in enumerate(whole)
    ]
    shared = backend(model)
    assert_same(shared.answer(asked), [fresh(model, trial) for trial in asked])
    assert shared.tokens == len(asked[0].prompt_ids) - 4 + 4 * len(asked)


def test_replies_come_in_the_order_of_the_trials() -> None:
    """Contexts, lengths and answer lengths may be mixed in one batch."""
    model = ours(GRIDS[0])
    mixed = [*trials(QueryPadding), *trials(answer=2), *trials(pairs=4)]
    order = np.random.default_rng(0).permutation(len(mixed))
    asked = [mixed[index] for index in order]
    assert_same(backend(model).answer(asked), backend(model, share_prefix=False).answer(asked))


def test_the_same_batch_gets_the_same_bits() -> None:
    """Replies of a resumed run equal those of an uninterrupted one to the last digit."""
    model, asked = ours(GRIDS[0]), trials()
    assert backend(model).answer(asked) == backend(model).answer(asked)


def test_no_forward_is_padded_and_none_is_larger_than_allowed() -> None:
    """Every forward's rows × length stays within `max_tokens`, and no attention mask is ever passed."""
    model = ours(GRIDS[0])
    forward, seen = model.forward, []

    def spy(*args: Any, **kwargs: Any) -> Any:
        held = 0 if kwargs["cache"] is None else kwargs["cache"].get_seq_length()
        seen.append((kwargs["input_ids"].shape[0] * (held + kwargs["input_ids"].shape[1]), set(kwargs)))
        return forward(*args, **kwargs)

    model.forward = spy
    backend(model, max_tokens=500).answer(trials())
    assert max(tokens for tokens, _ in seen) <= 500
    allowed = {"input_ids", "position_ids", "cache", "use_cache", "logits_to_keep"}
    assert all(names | {"position_ids"} == allowed for _, names in seen)


def test_logprobs_are_normalised_in_float32() -> None:
    """A bfloat16 model's log-probabilities over all candidates still sum to one to six digits."""
    model = qwen3().to(torch.bfloat16)
    every = tuple(range(64))
    asked = [Trial(t.prompt_ids, t.answer_ids, every, 0, t.block, t.cluster, t.layout) for t in trials()[:9]]
    for reply in backend(model).answer(asked):
        assert reply.candidate_logprobs is not None
        assert np.logaddexp.reduce(reply.candidate_logprobs) == pytest.approx(0, abs=1e-6)


def test_a_model_that_computes_no_number_is_named() -> None:
    """NaN weights give one line, not NaN observations."""
    model = qwen3()
    torch.nn.init.constant_(model.model.norm.weight, torch.nan)
    with pytest.raises(UsageError, match="tiny gives an answer the log-probability nan"):
        backend(model).answer(trials())


@pytest.mark.parametrize("kind", ["ours", "qwen3", "deepseek_v4"])
def test_a_saved_model_answers_as_before_it_was_saved(tmp_path: Path, kind: str) -> None:
    """`load` needs nothing but the folder, and names the same weights by the same digest."""
    model = {"ours": lambda: ours(GRIDS[0]), "qwen3": qwen3, "deepseek_v4": deepseek_v4}[kind]()
    model.save_pretrained(tmp_path / "saved")
    loaded = TransformersBackend.load(tmp_path / "saved", vocabulary=VOCABULARY, dtype="float32")
    assert_same(loaded.answer(trials()), backend(model).answer(trials()))
    assert loaded.describe()["digest"] == backend(model).describe()["digest"]
    assert loaded.describe()["model"] == "saved"


def test_the_digest_changes_with_a_weight_and_with_the_grid() -> None:
    """One weight, or the same weights read on another grid, is another model."""
    torch.manual_seed(0)
    model = ours(GRIDS[0])
    digests = {backend(model).describe()["digest"]}
    model.config.compression = {**model.config.compression, "stride": 4}
    digests.add(backend(model).describe()["digest"])
    with torch.no_grad():
        model.lm_head.weight[3, 3] += 1e-3
    digests.add(backend(model).describe()["digest"])
    assert len(digests) == 3


def test_when_entries_are_visible_is_said_only_where_version_0_1_did_not_have_it() -> None:
    """A model of version 0.1 has the digest and the description that it had there; `next` is another model."""
    named = {
        visibility: ours({**GRIDS[0], "visibility": visibility}).eval() for visibility in ("closing", "next")
    }
    named["next"].load_state_dict(named["closing"].state_dict())
    closing, late = (backend(model).describe() for model in named.values())
    assert "visibility" not in closing
    assert late["visibility"] == "next"
    assert closing["digest"] != late["digest"]
    assert TransformersBackend.load(zoo.folder("w8s8-2kv")).describe()["digest"] == (
        "0c0f1a8f6b02f1defb3f6734e3ece8f84c69a030f4cd3949bac0c8a18f9d5633"  # as version 0.1 wrote it
    )


@pytest.mark.parametrize(
    ("made", "grids"),
    [
        (lambda: ours(GRIDS[0]), [{"width": 8, "stride": 8, "shift": 0}]),
        (
            lambda: ours(GRIDS[1]),
            [{"width": 8, "stride": 4, "shift": 0}, {"width": 8, "stride": 4, "shift": 2}],
        ),
        (lambda: ours(None), []),
        (qwen3, []),
        (deepseek_v4, [{"width": 8, "stride": 4, "shift": 4}, {"width": 16, "stride": 16, "shift": 0}]),
    ],
)
def test_the_description_names_the_grids_that_are_known(made: Any, grids: Any) -> None:
    """Distinct grids of our models and of known foreign ones; none of dense ones."""
    described = backend(made()).describe()
    assert described["grids"] == grids
    json.dumps(described)
    assert backend(made(), grids=[WindowGrid(8, 4, 4)]).describe()["grids"] == [
        {"width": 8, "stride": 4, "shift": 4}
    ]


def test_the_grids_of_a_foreign_model_that_no_family_knows_are_null() -> None:
    """Unknown is not the same as none."""

    class Brandnew(Qwen3Config):
        model_type = "brandnew"

    model = Qwen3ForCausalLM(Brandnew(**SHAPE, num_key_value_heads=2, intermediate_size=64))
    assert backend(model).describe()["grids"] is None


def test_fields_of_code_that_does_not_run_make_no_grid() -> None:
    """A checkpoint for Activation Beacon that `transformers` loads is the dense model that it calls itself."""
    model = Qwen3ForCausalLM(
        Qwen3Config(**SHAPE, num_key_value_heads=2, intermediate_size=64, beacon_window=64, beacon_ratio=[4])
    )
    assert backend(model).describe()["grids"] == []


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    """Pickled weights are never loaded."""
    model = qwen3()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"holds no \*\.safetensors"):
        TransformersBackend.load(tmp_path, vocabulary=VOCABULARY)


def test_a_folder_that_brings_its_own_code_is_refused(tmp_path: Path) -> None:
    """Unless the user trusts it."""
    qwen3().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "model_type": "strange",
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("raise SystemExit('foreign code ran')")
    with pytest.raises(UsageError, match="cannot load") as caught:
        TransformersBackend.load(tmp_path, vocabulary=VOCABULARY)
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_tensor_are_refused(tmp_path: Path) -> None:
    """The library would fill the hole with random numbers."""
    from safetensors.torch import load_file, save_file

    qwen3().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"lack model\.layers\.1\.mlp\.up_proj\.weight"):
        TransformersBackend.load(tmp_path, vocabulary=VOCABULARY)


def test_the_vocabulary_is_read_from_the_card(tmp_path: Path) -> None:
    """A trained checkpoint says which ids it knows as fillers, keys and values."""
    qwen3().save_pretrained(tmp_path)
    (tmp_path / "card.json").write_text(json.dumps({"vocabulary": VOCABULARY.model_dump(), "seed": 1}))
    assert TransformersBackend.load(tmp_path).vocabulary() == VOCABULARY


@pytest.mark.parametrize("card", [{}, {"vocabulary": {"fillers": [1], "keys": [1], "values": [2]}}, []])
def test_a_card_without_a_usable_vocabulary_is_refused(tmp_path: Path, card: Any) -> None:
    """One line that names the file."""
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(PhasescopeError, match=r"card\.json") as caught:
        folder_vocabulary(tmp_path)
    assert "\n" not in str(caught.value)


def save_tokenizer(folder: Path, words: int) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with `words` tokens of a space and a word, and some that are none."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["<end>", *letters, *letters.upper(), "Ġ", "Ġa", "ĠAb", "ab", "Ġa1"]
    tokens += [f"Ġ{a}{b}" for a in letters for b in letters][:words]
    merges = [("Ġ", token[1]) for token in tokens[-words:] if token[1] != "a"]
    vocabulary = {
        token: index for index, token in enumerate(dict.fromkeys([*tokens, *(a + b for a, b in merges)]))
    }
    merges = [("Ġ", "a"), *dict.fromkeys(merges), *((f"Ġ{token[1]}", token[2]) for token in tokens[-words:])]
    raw = Tokenizer(models.BPE(vocabulary, merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<end>")
    tokenizer.save_pretrained(folder)
    return tokenizer


def test_without_a_card_the_vocabulary_is_made_of_whole_words(tmp_path: Path) -> None:
    """Lower-case words with their space, in the order of their ids: fillers, keys, values."""
    tokenizer = save_tokenizer(tmp_path, 600)
    vocabulary = folder_vocabulary(tmp_path)
    ids = [*vocabulary.fillers, *vocabulary.keys, *vocabulary.values]
    assert ids == sorted(ids)
    assert len(vocabulary.fillers) >= 32
    assert vocabulary.pairs >= 64
    for token in ids:
        text = tokenizer.decode([token])
        assert text[0] == " "
        assert text[1:].islower()
        assert tokenizer.encode(text, add_special_tokens=False) == [token]


def test_a_tokenizer_with_too_few_words_and_a_folder_without_one_say_what_to_do(tmp_path: Path) -> None:
    """Both ask for a vocabulary."""
    with pytest.raises(UsageError, match=r"neither card\.json nor a tokenizer\.json; pass a vocabulary"):
        folder_vocabulary(tmp_path)
    save_tokenizer(tmp_path, 100)
    with pytest.raises(UsageError, match="100 whole lower-case words; 576 are needed, so pass a vocabulary"):
        folder_vocabulary(tmp_path)


def test_by_default_a_forward_holds_what_fits_the_memory() -> None:
    """1 GiB of keys and values: all of 65,536 tokens of a tiny model, fewer of a wide one; on record."""
    tiny, wide = qwen3(), qwen3()
    wide.config.head_dim, wide.config.num_key_value_heads = (
        1024,
        16,
    )  # 2 × 2 layers × 16 heads × 4 KiB a token
    assert backend(tiny).describe()["max_tokens"] == 65536
    assert backend(wide).describe()["max_tokens"] == 2**30 // (2 * 2 * 16 * 4096)


def test_a_forward_must_hold_something() -> None:
    """`max_tokens` of 0 is refused."""
    with pytest.raises(UsageError, match="max_tokens is 0"):
        backend(qwen3(), max_tokens=0)
