"""The planted backend does what it says, so that statistics can be tested against it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from phasescope import Reply, Trial, UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.protocols import PrefixPadding

CURVE = (0.9, 0.6, 0.3, 0.75)
GRID = WindowGrid(4, 4)
PROTOCOL = PrefixPadding(pairs=48, contexts=24)


def ask(backend: Planted, protocol: Any = PROTOCOL) -> list[tuple[Trial, Reply]]:
    """Every trial with its reply."""
    drawn = protocol.batches(backend.vocabulary(), np.random.default_rng(5))
    return [pair for batch in drawn for pair in zip(batch, backend.answer(batch), strict=True)]


def rates(
    backend: Planted, answered: Sequence[tuple[Trial, Reply]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Accuracy, mean log-probability and number of answers per phase."""
    phase = np.array([backend.grid.phase(trial.source_position) for trial, _ in answered])
    right = np.array([reply.ids == trial.answer_ids for trial, reply in answered])
    logprob = np.array([reply.answer_logprob for _, reply in answered])
    phases = range(backend.grid.stride)
    return (
        np.array([right[phase == p].mean() for p in phases]),
        np.array([logprob[phase == p].mean() for p in phases]),
        np.array([(phase == p).sum() for p in phases]),
    )


@pytest.mark.parametrize("grid", [GRID, WindowGrid(8, 4, 3)])
def test_accuracy_and_logprob_per_phase_are_those_planted(grid: WindowGrid) -> None:
    """Within four standard errors of the curve and of the closed form, on 6,912 answers per phase."""
    backend = Planted(grid=grid, curve=CURVE)
    accuracy, logprob, count = rates(backend, ask(backend))
    truth = backend.truth()
    assert truth.accuracy == pytest.approx(CURVE)
    assert (np.abs(accuracy - CURVE) < 4 * np.sqrt(0.25 / count)).all()
    assert (np.abs(logprob - truth.logprob) < 4 * 2 / np.sqrt(count)).all()


def test_the_truth_averages_over_the_random_effects() -> None:
    """Independent block effects of 2 logits pull 0.9 towards one half, as drawn and as stated."""
    backend = Planted(grid=GRID, curve=CURVE, block_sd=2.0)
    accuracy, logprob, _ = rates(backend, ask(backend))
    truth = backend.truth()
    assert truth.accuracy[0] < 0.83
    assert np.abs(accuracy - truth.accuracy).max() < 0.03  # 1,152 blocks
    assert np.abs(logprob - truth.logprob).max() < 0.12


@pytest.mark.parametrize(
    ("effect", "unit"),
    [
        ("block_sd", lambda trial: trial.block),
        ("cluster_sd", lambda trial: trial.cluster),
        ("layout_sd", lambda trial: (trial.cluster, trial.layout)),
    ],
)
def test_each_effect_is_shared_by_its_own_unit_alone(effect: str, unit: Any) -> None:
    """Accuracies of the unit spread far more than without the effect; without any, as binomials do."""

    def spread(backend: Planted) -> float:
        """Variance of the unit's mean accuracy over the binomial one."""
        right: dict[Any, list[bool]] = {}
        for trial, reply in ask(backend):
            right.setdefault(unit(trial), []).append(reply.ids == trial.answer_ids)
        means = [np.mean(values) for values in right.values()]
        return float(np.var(means) / (0.25 / np.mean([len(values) for values in right.values()])))

    flat = (0.5,) * 4
    assert spread(Planted(grid=GRID, curve=flat)) == pytest.approx(1, abs=0.8)
    assert spread(Planted(grid=GRID, curve=flat, **{effect: 1.0})) > 4


def test_a_trend_moves_accuracy_with_depth_and_not_with_phase() -> None:
    """One logit per 40 tokens: the deep half is recalled better, the four phases equally well."""
    backend = Planted(grid=GRID, curve=(0.3,) * 4, trend=1 / 40)
    answered = ask(backend)
    accuracy, _, _ = rates(backend, answered)
    deep = [reply.ids == trial.answer_ids for trial, reply in answered if trial.source_position > 71]
    early = [reply.ids == trial.answer_ids for trial, reply in answered if trial.source_position <= 71]
    assert np.mean(deep) > np.mean(early) + 0.15
    assert np.ptp(accuracy) < 0.04


def test_the_query_can_be_the_coordinate() -> None:
    """Then the phase of the last prompt token decides."""
    backend = Planted(grid=GRID, curve=(0.95, 0.05, 0.05, 0.05), coordinate="query")
    right: dict[int, list[bool]] = {phase: [] for phase in range(4)}
    for trial, reply in ask(backend):
        right[(len(trial.prompt_ids) - 1) % 4].append(reply.ids == trial.answer_ids)
    assert np.mean(right[0]) > 0.9
    assert max(np.mean(right[phase]) for phase in (1, 2, 3)) < 0.1


def test_the_greedy_answer_is_the_most_probable_candidate() -> None:
    """Right iff the right answer's probability exceeds one half; a wrong answer is another candidate."""
    for trial, reply in ask(Planted(grid=GRID, curve=CURVE, layout_sd=0.5)):
        assert reply.candidate_logprobs is not None
        assert reply.answer_logprob is not None
        assert trial.candidate_ids[int(np.argmax(reply.candidate_logprobs))] == reply.ids[0]
        assert (reply.ids == trial.answer_ids) == (reply.answer_logprob > np.log(0.5))
        assert np.logaddexp.reduce(reply.candidate_logprobs) == pytest.approx(0, abs=1e-9)


def test_a_reply_depends_on_its_trial_and_the_seed_alone() -> None:
    """Not on the order, not on what else is asked; another seed answers otherwise."""
    batch = next(PROTOCOL.batches(Planted(grid=GRID, curve=CURVE).vocabulary(), np.random.default_rng(0)))
    backend = Planted(grid=GRID, curve=CURVE, block_sd=1, cluster_sd=1, layout_sd=1)
    replies = backend.answer(batch)
    assert backend.answer(batch[::-1]) == replies[::-1]
    assert backend.answer(batch[7:8]) == replies[7:8]
    assert Planted(grid=GRID, curve=CURVE, seed=1).answer(batch) != Planted(grid=GRID, curve=CURVE).answer(
        batch
    )


@pytest.mark.parametrize("curve", [(0.5,) * 3, (0.5, 0.5, 0.5, 1.0), (0.5, 0.5, 0.5, -0.1)])
def test_a_curve_that_does_not_fit_is_refused(curve: tuple[float, ...]) -> None:
    """One accuracy per phase, none of them certain."""
    with pytest.raises(UsageError, match="give 4 accuracies between 0 and 1"):
        Planted(grid=GRID, curve=curve)


def test_the_description_holds_everything_that_was_planted() -> None:
    """Two backends with different curves are different runs."""
    described = Planted(grid=WindowGrid(8, 4, 4), curve=CURVE, layout_sd=0.5).describe()
    assert described["grids"] == [{"width": 8, "stride": 4, "shift": 4}]
    assert described["planted"]["curve"] == CURVE
    assert described["planted"]["layout_sd"] == 0.5
