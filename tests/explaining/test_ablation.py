"""Ablation from one shared read equals a fresh forward per prompt with a hook of the test's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from phasescope import Trial, UsageError
from phasescope.explaining.ablation import Ablation
from phasescope.explaining.hooks import find_attention_hooks
from phasescope.explaining.reading import has_branches
from phasescope.explaining.units import BASE, every_head, latent_heads, together

from .conftest import MODELS, draw

TOLERANCE = 2e-4  # of a log-probability in float32


@pytest.fixture(params=MODELS, scope="module")
def model(request: pytest.FixtureRequest) -> Any:
    """Each architecture, with random weights from one seed."""
    return MODELS[request.param]()


def engine(model: Any, units: Any = None, **settings: Any) -> Ablation:
    """An ablation of every head that has read its reference prompts."""
    found_hooks = find_attention_hooks(model)
    known = every_head([one.shape for one in found_hooks])
    made = Ablation(model, found_hooks, known if units is None else units, **settings)
    made.learn(draw(seed=7))
    return made


def alone(model: Any, trial: Trial, change: Any = None) -> tuple[dict[int, torch.Tensor], torch.Tensor]:
    """One prompt in one forward without a cache: heads' outputs at its end, and log-probabilities."""
    seen, hooks = {}, []
    for one in find_attention_hooks(model):

        def hook(module: Any, args: Any, one: Any = one) -> Any:
            x = args[0].clone()
            heads = x.view(1, x.shape[1], one.shape.queries, -1)
            seen[one.layer] = heads[0, -1].clone()
            if change is not None:
                change(one.layer, heads[0, -1])
            return (x,)

        hooks.append(one.projection.register_forward_pre_hook(hook))
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([trial.prompt_ids]), use_cache=False).logits[0, -1]
    for hook in hooks:
        hook.remove()
    return seen, logits.log_softmax(-1)


def answers(model: Any, trials: list[Trial], change: Any = None) -> list[float]:
    """Log-probability of each trial's answer, one forward each."""
    return [float(alone(model, trial, change)[1][trial.answer_ids[0]]) for trial in trials]


def said(replies: Any) -> list[float]:
    """Log-probabilities of replies."""
    return [reply.answer_logprob for reply in replies]


def test_mean_ablation_equals_one_forward_per_prompt(model, trials):
    """For every head: its mean over other prompts, put in its place at the last position alone."""
    made = engine(model)
    found = made.ask(trials)
    assert said(found[BASE]) == pytest.approx(answers(model, trials), abs=TOLERANCE)
    outputs = [alone(model, trial)[0] for trial in draw(seed=7)]
    for unit in made.units:
        (part,) = unit.parts
        mean = torch.stack([seen[part.layer] for seen in outputs]).mean(0)

        def change(layer: int, heads: torch.Tensor, part: Any = part, mean: Any = mean) -> None:
            if layer == part.layer:
                heads[list(part.queries)] = mean[list(part.queries)]

        assert said(found[unit.name]) == pytest.approx(answers(model, trials, change), abs=TOLERANCE)


def test_ablation_at_every_position_equals_one_forward_per_prompt_with_a_hook(model, trials):
    """Zeros and means in place of a head at all positions, the context read anew without it."""
    (*_, unit) = every_head([one.shape for one in find_attention_hooks(model)])
    (part,) = unit.parts
    projection = next(s for s in find_attention_hooks(model) if s.shape.layer == part.layer)
    for mode in ("zero", "mean"):
        made = engine(model, [unit], mode=mode, where="everywhere")
        mean = made.activations.mean_AD(part.layer, "all").float() if mode == "mean" else None

        def hook(module: Any, args: Any, mean: Any = mean) -> Any:
            x = args[0].clone()
            heads = x.view(*x.shape[:2], projection.shape.queries, -1)
            queries = list(part.queries)
            heads[:, :, queries] = 0 if mean is None else mean[queries]
            return (x,)

        found = made.ask(trials)
        handle = projection.projection.register_forward_pre_hook(hook)
        expected = answers(model, trials)
        handle.remove()
        assert said(found[unit.name]) == pytest.approx(expected, abs=TOLERANCE)
        assert said(found[BASE]) == pytest.approx(answers(model, trials), abs=TOLERANCE)


def test_entries_taken_away_everywhere_leave_the_raw_tokens_alone(trials):
    """A layer whose entries hold zeros for one head's keys and values is the reference, in a softmax of its own."""
    model = MODELS["two heads"]()
    (unit,) = [
        u
        for u in every_head([s.shape for s in find_attention_hooks(model)], "entries")
        if u.name == "L0.H1 entries"
    ]
    made = engine(model, [unit], mode="zero", where="everywhere")
    found = said(made.ask(trials)[unit.name])
    attention = model.model.layers[0].self_attn
    given = attention._block

    def block(query: Any, hidden: Any, position: Any, reads: Any, first: int) -> Any:
        q, key, value, mask = attention.operands(query, hidden, position, reads, first)
        key, value = (x.repeat_interleave(2, 1) for x in (key, value))
        weight = ((q @ key.mT) * attention.scaling).masked_fill(~mask, -torch.inf).softmax(-1)
        weight[:, 2:, :, : reads.key_BHND.shape[2]] = 0
        return weight @ value

    attention._block = block
    expected = answers(model, trials)
    attention._block = given
    assert found == pytest.approx(expected, abs=TOLERANCE)


def test_what_has_no_mean_at_every_position_is_refused():
    """Resampling, raw tokens, and bound entries, each in one line."""
    model = MODELS["bound, with a sink"]()
    shapes = [one.shape for one in find_attention_hooks(model)]
    with pytest.raises(UsageError, match="mean or by zero"):
        engine(model, mode="resample", where="everywhere")
    with pytest.raises(UsageError, match="mean or by zero"):
        engine(model, every_head(shapes, "local"), where="everywhere")
    with pytest.raises(UsageError, match="no mean over positions"):
        engine(model, every_head(shapes, "entries"), where="everywhere")
    theirs = MODELS["deepseek_v4"]()
    heads = every_head([one.shape for one in find_attention_hooks(theirs)], "entries")
    with pytest.raises(UsageError, match="own models only"):
        engine(theirs, heads, mode="zero", where="everywhere")


def test_zero_ablation_of_heads_in_two_layers_at_once(model, trials):
    """Several heads together are recomputed from the lowest one on."""
    known = every_head([one.shape for one in find_attention_hooks(model)])
    both = together(f"{known[-1].name}+{known[0].name}", known)

    def change(layer: int, heads: torch.Tensor) -> None:
        for part in both.parts:
            if part.layer == layer:
                heads[list(part.queries)] = 0

    found = engine(model, [both], mode="zero").ask(trials)[both.name]
    assert said(found) == pytest.approx(answers(model, trials, change), abs=TOLERANCE)


def test_small_forwards_give_what_large_ones_give(model, trials):
    """How questions and units are cut into forwards does not matter."""
    large, small = engine(model).ask(trials), engine(model, max_tokens=60).ask(trials)
    for condition, replies in large.items():
        assert said(small[condition]) == pytest.approx(said(replies), abs=TOLERANCE)


def test_hooks_are_gone_afterwards(model, trials):
    """The model answers as before, and no instance keeps a forward of its own."""
    before = answers(model, trials[:2])
    engine(model, mode="resample").ask(trials)
    assert answers(model, trials[:2]) == before
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
        assert "forward" not in module.__dict__
        assert "_block" not in module.__dict__


def test_the_hooks_are_verified_when_they_are_attached(model):
    """The identity edit changes nothing, zeros change something."""
    verified = engine(model).verified
    assert verified["identity_edit"] <= 1e-5
    assert verified["zero_edit"] > 1e-3


def test_entries_and_raw_tokens_together_are_the_whole(model, trials):
    """Both parts of every head sum to its output, and taking its entries away matters.

    The raw part may be nothing: the query may close the window that it stands in.
    """
    found_hooks = [one for one in find_attention_hooks(model) if has_branches(one.attention)]
    if not found_hooks:
        with pytest.raises(UsageError, match="no entries"):
            every_head([one.shape for one in find_attention_hooks(model)], "entries")
        return
    shapes = [one.shape for one in find_attention_hooks(model)]
    parts = {
        branch: engine(model, every_head(shapes, branch), mode="zero") for branch in ("entries", "local")
    }
    found = parts["entries"].ask(trials)
    for condition in parts["entries"].conditions[1:]:
        assert said(found[condition]) != pytest.approx(said(found[BASE]), abs=1e-3)
    bank = {branch: made.activations for branch, made in parts.items()}
    whole = engine(model, every_head(shapes), mode="zero").activations
    for one in found_hooks:
        layer = one.layer
        both = bank["entries"].mean_AD(layer, "entries") + bank["local"].mean_AD(layer, "local")
        assert torch.allclose(both, whole.mean_AD(layer, "all"), atol=1e-5)


def test_the_entries_of_our_attention_are_those_of_its_own_softmax(trials):
    """By hand: scores of all entries and raw tokens, one softmax, the entries' share of the values."""
    model = MODELS["two heads"]()
    attention = model.model.layers[0].self_attn
    made = engine(
        model, every_head([one.shape for one in find_attention_hooks(model)], "entries"), mode="resample"
    )
    seen: list[torch.Tensor] = []
    given = attention._block

    def block(query: Any, hidden: Any, position: Any, reads: Any, first: int) -> Any:
        q, key, value, mask = attention.operands(query, hidden, position, reads, first)
        groups = q.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        weight = ((q @ key.mT) * attention.scaling).masked_fill(~mask, -torch.inf).softmax(-1)
        entries = reads.key_BHND.shape[2]
        seen.append((weight[..., :entries] @ value[..., :entries, :])[0, :, -1])
        return given(query, hidden, position, reads, first)

    attention._block = block
    with torch.inference_mode():
        for trial in draw(seed=7):
            model(input_ids=torch.tensor([trial.prompt_ids]), use_cache=False)
    sample = torch.cat(made.activations.samples[0, "entries"])
    assert torch.allclose(sample.double().mean(0), torch.stack(seen).double().mean(0), atol=1e-5)


def test_the_compressed_branch_of_deepseek_v4_has_the_size_that_its_weights_give_it():
    """Attention weights on entries times entries; the rotation that follows keeps lengths."""
    model = MODELS["deepseek_v4"]()
    shapes = [one.shape for one in find_attention_hooks(model)]
    units = latent_heads(shapes)
    names = [unit.name for unit in units]
    assert names == [
        *(f"L0.Q{q}" for q in range(4)),
        *(f"L1.Q{q}" for q in range(4)),
        "L1.entries",
        *(f"L2.Q{q}" for q in range(4)),
        "L2.entries",
    ]
    trial = draw(seed=7)[0]
    made = Ablation(model, find_attention_hooks(model), units, mode="resample")
    made.learn([trial])
    attention, seen = model.model.layers[1].self_attn, {}
    hooks = [
        attention.register_forward_hook(lambda m, a, out: seen.update(weight=out[1])),
        attention.compressor.register_forward_hook(lambda m, a, out: seen.update(entries=out[0])),
    ]
    with torch.inference_mode():
        model(input_ids=torch.tensor([trial.prompt_ids]), use_cache=False)
    for hook in hooks:
        hook.remove()
    count = seen["entries"].shape[2]
    expected = (seen["weight"][0, :, -1, -count:] @ seen["entries"][0, 0]).norm(dim=-1)
    sample = torch.cat(made.activations.samples[1, "entries"])
    assert count > 5
    assert sample[0].norm(dim=-1).tolist() == pytest.approx(expected.tolist(), rel=1e-4)


def test_resampling_is_the_same_whatever_else_is_asked(model, trials):
    """A trial's own digest draws its prompt, so that a resumed run draws the same."""
    made = engine(model, mode="resample")
    every = made.ask(trials)
    some = made.ask(trials[:3])
    for condition in made.conditions:
        assert said(some[condition]) == pytest.approx(said(every[condition])[:3], abs=TOLERANCE)


def test_a_model_without_heads_to_be_found_is_refused():
    """One line says which models can be taken apart."""
    with pytest.raises(UsageError, match="o_proj"):
        find_attention_hooks(torch.nn.Sequential(torch.nn.Linear(2, 2)))


def test_units_join_by_name_and_unknown_names_are_refused():
    """Joined units keep their parts; a wrong name lists the right ones."""
    known = every_head([one.shape for one in find_attention_hooks(MODELS["llama"]())])
    assert [unit.name for unit in known] == ["L0.H0", "L0.H1", "L1.H0", "L1.H1"]
    assert known[3].parts[0].queries == (3, 4, 5)
    assert together("L0.H0+L1.H1", known).name == "L0.H0+L1.H1"
    with pytest.raises(UsageError, match=r"L9.H9.*L0.H0"):
        together("L0.H0+L9.H9", known)
