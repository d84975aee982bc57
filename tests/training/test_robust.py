"""Records at phases that are recalled badly weigh more."""

import numpy as np
import pytest
import torch

from phasescope.models import Compression
from phasescope.text.corpus import build
from phasescope.training import Progress, RetrievalTask, Training, train
from phasescope.training.mixture import loss_of, parts_of
from phasescope.training.robust import key_phases, phase_sums, phase_weights, running_losses
from phasescope.training.trainer import new_model

GRID = Compression(compressor="scalar_gate", width=4, stride=4)
SMALL = {
    "layers": 1,
    "hidden_size": 16,
    "heads": 2,
    "kv_heads": 2,
    "head_dim": 8,
    "feed_forward": 16,
    "rows": 4,
}


@pytest.mark.parametrize("roles", ["fixed", "drawn"])
@pytest.mark.parametrize("shift", [0, 3])
def test_the_phase_is_where_the_record_stands(roles, shift):
    """Of every recalled value: the place of its key in the block of records, on the moved grid."""
    task = RetrievalTask(fillers=20, roles=roles)
    ids, labels = task.batch(6, 8, np.random.default_rng(0))
    places = np.flatnonzero(labels[0] != -100)
    found = key_phases(torch.from_numpy(ids), torch.from_numpy(places), 4, shift)
    for row, phases in zip(ids.tolist(), found.tolist(), strict=True):
        for place, phase in zip(places, phases, strict=True):
            key, value = row[place - 1], row[place]
            start = row.index(key)
            assert row[start + 1] == value
            assert start < place - 1
            assert phase == (start + shift) % 4


def test_weights_are_powers_of_losses_with_mean_one():
    """Power 0 weighs all alike, power 2 a loss of three times as much nine times."""
    assert phase_weights([0.5, 1.5], 0).tolist() == [1, 1]
    assert phase_weights([0.5, 1.5], 2).tolist() == pytest.approx([0.2, 1.8])
    assert phase_weights([0.0, 0.0], 2).tolist() == [1, 1]


def test_running_losses_follow_the_visited_phases():
    """Before its first visit a phase counts as the mean; one that is not visited keeps its own."""
    sums = phase_sums(torch.tensor([[1.0, 3.0], [5.0, 1.0]]), torch.tensor([[0, 1], [1, 0]]), 3)
    torch.testing.assert_close(sums, torch.tensor([[0.5, 2.0, 0.0], [0.5, 0.5, 0.0]]))
    first = running_losses((), sums.tolist())
    assert first == pytest.approx((2.5 - 0.05 * 1.5, 2.5 + 0.05 * 1.5, 2.5))
    assert running_losses((4.0, 2.0, 7.0), [[0, 1, 0], [0, 0.5, 0]]) == (4.0, 2.0, 7.0)


def test_a_step_follows_the_gradient_of_the_weighted_phases():
    """The part's loss is the sum over phases of weight times loss, over the number of records."""
    settings = Training(compression=GRID, robust=2.0, **SMALL)
    progress = Progress(pairs=4, phase_losses=(0.5, 1.0, 2.0, 4.0))
    (part,) = parts_of(settings, progress, None, 0, 1)
    model = new_model(settings)
    loss, _, losses_BK = loss_of(model, part, torch.device("cpu"))
    weight_S = np.array([0.25, 1, 4, 16]) / np.mean([0.25, 1, 4, 16])
    expected = (weight_S[part.phases_BK.numpy()] * losses_BK.numpy()).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert loss.item() != pytest.approx(losses_BK.mean().item(), rel=1e-2)


def test_weights_may_wait_while_losses_are_told():
    """Until `robust_after` every record weighs alike, and its phase is known."""
    progress = Progress(pairs=4, step=5, phase_losses=(0.5, 1.0, 2.0, 4.0))
    for after, waits in ((5, False), (6, True)):
        settings = Training(compression=GRID, robust=2.0, robust_after=after, **SMALL)
        (part,) = parts_of(settings, progress, None, 0, 1)
        assert (part.share_S is None) == waits
        assert part.phases_BK is not None


def test_robust_training_says_the_phases_losses_and_other_training_does_not(tmp_path):
    """One running loss a phase; the reported loss stays the plain mean; text has no phases."""
    texts = (f"document {i} has a word or two " * 9 for i in range(30))
    corpus = build(texts, 280, tmp_path / "corpus", held_out=0.3)
    words = corpus.facts.vocabulary
    given = {"compression": GRID, "steps": 3, "warmup": 1, **SMALL}
    text = {"corpus": corpus.facts.digest, "vocabulary": words, "rows": 2, "tokens": 16}
    vocabulary = RetrievalTask().vocabulary.contiguous(4, 8, 8, words)
    given |= {"text": text, "task": {"vocabulary": vocabulary, "fillers": 8}, "max_pairs": 4}
    plain = train(Training(**given), tmp_path / "plain", corpus=corpus)
    robust = train(Training(**given, robust=3.0), tmp_path / "robust", corpus=corpus)
    assert plain.phase_losses == ()
    assert len(robust.phase_losses) == 4
    assert np.mean(robust.phase_losses) == pytest.approx(robust.loss, rel=0.2)
    assert robust.text_loss != plain.text_loss
