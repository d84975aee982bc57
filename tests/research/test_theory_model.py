"""The idealised task: closed forms, simulation, and where the gradient flow ends."""

from __future__ import annotations

import numpy as np
import pytest
from research.theory_model import (
    Task,
    best_even,
    best_gate,
    cosine,
    flow,
    grows_at,
    keeping,
    simulate,
    softmax,
    two_entries,
)

from phasescope import UsageError


def test_two_entries_have_a_closed_form():
    """The quadrature agrees with the difference of two normal scores."""
    task = Task(entries=2, channels=16, noise=0.7)
    u = np.linspace(0, 1, 21)
    assert task.found(u) == pytest.approx(two_entries(task, u), abs=1e-10)


def test_a_token_that_is_not_in_the_entry_is_found_by_chance():
    """f(0) = 1/N, and f rises with u."""
    task = Task(entries=32)
    assert float(task.found(0.0)) == pytest.approx(1 / 32)
    assert (np.diff(task.found(np.linspace(0, 1, 30))) > 0).all()


def test_the_task_itself_gives_the_formula():
    """Monte Carlo of keys, entries and noisy queries, slot by slot, for an uneven gate."""
    task = Task(width=4, entries=16, channels=48, noise=0.5)
    gate = np.array([[0.5, 0.3, 0.15, 0.05]])
    drawn = simulate(task, gate, rng=np.random.default_rng(0), trials=1500)
    assert drawn == pytest.approx(task.accuracy_W(gate), abs=0.045)  # 3.5 standard errors


def test_two_heads_find_what_either_finds():
    """Heads are independent tries."""
    task = Task(width=4, entries=16, channels=32, heads=2)
    gates = np.array([[0.9, 0.05, 0.03, 0.02], [0.02, 0.03, 0.05, 0.9]])
    one, two = (task.found(cosine(gate)) for gate in gates)
    assert task.accuracy_W(gates) == pytest.approx(1 - (1 - one) * (1 - two))
    drawn = simulate(task, gates, rng=np.random.default_rng(1), trials=700)
    assert drawn == pytest.approx(task.accuracy_W(gates), abs=0.07)


def test_the_gradient_is_that_of_the_objective():
    """Against finite differences in the logits."""
    task = Task(width=5, entries=32, channels=32, heads=2)
    logits = np.random.default_rng(0).standard_normal((2, 5))
    found = task.gradient_HW(logits)
    for head, slot in ((0, 0), (1, 3)):
        moved = np.zeros_like(logits)
        moved[head, slot] = 1e-4
        slope = (task.value(softmax(logits + moved)) - task.value(softmax(logits - moved))) / 2e-4
        assert found[head, slot] == pytest.approx(slope, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize(
    ("entries", "channels", "heads"), [(64, 16, 1), (64, 64, 1), (1024, 64, 1), (64, 64, 2), (64, 64, 4)]
)
def test_small_preferences_grow_at_the_rate_of_the_closed_form(entries, channels, heads):
    """Heads alike, and against each other."""
    task = Task(entries=entries, channels=channels, heads=heads)
    rates = task.growth()
    assert grows_at(task) == pytest.approx(rates["alike"], rel=1e-3)
    if heads > 1:
        assert grows_at(task, alike=False) == pytest.approx(rates["apart"], rel=1e-3)
        assert rates["apart"] > rates["alike"]


def test_one_head_drops_slots_where_the_match_is_hard_and_keeps_all_where_it_is_easy():
    """The best even gate narrows as the number of entries grows, and widens with the channels."""
    kept = [best_even(Task(entries=entries, channels=16))[0] for entries in (2, 64, 1024)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 8
    assert kept[-1] == 1
    assert best_even(Task(entries=1024, channels=256))[0] == 8


def test_best_even_is_the_objective_of_such_gates():
    """Its closed form against the objective."""
    task = Task(width=6, entries=64, channels=16)
    _, values = best_even(task)
    assert values == pytest.approx([task.value(keeping(6, m)[None]) for m in range(1, 7)])


def test_where_the_even_gate_is_stable_flow_returns_to_it():
    """One head, easy match."""
    task = Task(entries=8, channels=64)
    assert task.stable
    found = flow(task, rng=np.random.default_rng(0), end=1000, steps=10)
    assert found.gate_THW[-1] == pytest.approx(np.full((1, 8), 1 / 8), abs=0.005)


def test_two_heads_part_the_slots_among_themselves():
    """Where one head would stay even, two come apart and together keep every phase."""
    assert Task(entries=64, channels=64).stable
    task = Task(entries=64, channels=64, heads=2)
    assert not task.stable
    found = flow(task, rng=np.random.default_rng(0), end=2000, steps=12)
    kept = found.gate_THW[-1] > 0.1
    assert kept.sum(axis=1).tolist() == [4, 4]
    assert (kept.sum(axis=0) == 1).all()
    assert (np.diff(found.value_T) >= -1e-9).all()
    assert found.value_T[-1] > found.value_T[0] + 0.05


def test_best_gate_is_no_worse_than_the_even_one():
    """It is one of the starts."""
    task = Task(width=4, entries=256, channels=16)
    _, value = best_gate(task, rng=np.random.default_rng(0), starts=3, end=300)
    assert value >= task.value(np.full((1, 4), 0.25))
    assert value >= best_even(task)[1].max() - 0.01


@pytest.mark.parametrize(
    "wrong", [{"width": 1}, {"entries": 1}, {"heads": 0}, {"channels": 0}, {"noise": -1}]
)
def test_impossible_tasks_are_refused(wrong):
    """One line that says what is allowed."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Task(**wrong)
