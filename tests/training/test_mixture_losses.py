"""What a step reads and loses, against the same written out by hand."""

import numpy as np
import pytest
import torch

from phasescope.training import Progress, Training, held_out_loss
from phasescope.training.data import IGNORED
from phasescope.training.mixture import loss_of, parts_of
from phasescope.training.trainer import new_model
from tests.builders.corpora import made_corpus, mixed

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return made_corpus(tmp_path_factory.mktemp("made") / "corpus")


def parts(corpus, *, process=0, processes=1, step=3, **settings):
    made = Training(**mixed(corpus, **settings))
    return list(parts_of(made, Progress(pairs=4, step=step), corpus, process, processes))


def slow_loss(model, ids_BT, places_K):
    """Mean of −log p of the tokens at these places, one token at a time."""
    losses = []
    for row in ids_BT:
        logits_TV = model(input_ids=row[None], use_cache=False).logits[0].double()
        for place in places_K:
            p = logits_TV[place - 1].exp() / logits_TV[place - 1].exp().sum()
            losses.append(-p[row[place]].log().item())
    return float(np.mean(losses))


@torch.no_grad()
def test_losses_are_the_mean_over_values_and_over_all_tokens_of_text(corpus):
    """Of records the values of the second part, of text every token but the first of a window."""
    model = new_model(Training(**mixed(corpus)))
    records, text = parts(corpus)
    assert (records.kind, text.kind) == ("records", "text")
    tokens = records.ids_BT.shape[1]
    values = range(tokens - 7, tokens, 2)  # of four pairs: key value key value …
    assert (records.labels_BT[0] != IGNORED).nonzero()[:, 0].tolist() == list(values)
    loss, accuracy, _ = loss_of(model, records, CPU)
    assert loss.item() == pytest.approx(slow_loss(model, records.ids_BT, values), rel=1e-4)
    guesses = model(input_ids=records.ids_BT, use_cache=False).logits.argmax(-1)
    hits = [(guesses[:, place - 1] == records.ids_BT[:, place]).float().mean().item() for place in values]
    assert accuracy.item() == pytest.approx(np.mean(hits))
    loss, _, _ = loss_of(model, text, CPU)
    assert loss.item() == pytest.approx(slow_loss(model, text.ids_BT, range(1, 24)), rel=1e-4)
    held = torch.from_numpy(corpus.spread("held_out", 5, 24))
    expected = slow_loss(model, held, range(1, 24))
    assert held_out_loss(model, corpus, 24, windows=5, rows=2) == pytest.approx(expected, rel=1e-4)


def test_text_comes_from_the_training_part_and_records_use_other_ids(corpus):
    """Windows of train.bin; records' ids lie above the text's."""
    records, text = parts(corpus)
    train = np.fromfile(corpus.folder / "train.bin", corpus.facts.dtype).astype(int)
    inside = " ".join(map(str, train))
    assert all(" ".join(map(str, row.tolist())) in inside for row in text.ids_BT)
    assert records.ids_BT.min() >= corpus.facts.vocabulary > text.ids_BT.max()


def test_a_mixture_of_one_kind_has_one_part_and_draws_follow_the_step(corpus):
    """Records and text draw apart: leaving one out doesn't change the other."""
    records, text = parts(corpus)
    (alone,) = parts(corpus, task=None)
    assert torch.equal(alone.ids_BT, text.ids_BT)
    (other,) = parts(corpus, text=None)
    assert torch.equal(other.ids_BT, records.ids_BT)
    assert not torch.equal(parts(corpus, step=4)[1].ids_BT, text.ids_BT)
    assert not torch.equal(parts(corpus, seed=1)[1].ids_BT, text.ids_BT)


@pytest.mark.parametrize(("accumulate", "processes"), [(2, 1), (1, 2), (2, 2)])
def test_parts_of_all_processes_are_the_whole_step(corpus, accumulate, processes):
    """Every sequence once, with weights that add up."""
    whole = {part.kind: part for part in parts(corpus)}
    shared = [
        part
        for process in range(processes)
        for part in parts(corpus, accumulate=accumulate, process=process, processes=processes)
    ]
    for kind, part in whole.items():
        mine = [share for share in shared if share.kind == kind]
        assert len(mine) == accumulate * processes
        rows = sorted(row.tolist() for share in mine for row in share.ids_BT)
        assert rows == sorted(part.ids_BT.tolist())
        assert sum(share.weight for share in mine) == pytest.approx(part.weight * processes)


def test_every_part_of_every_step_has_a_shift_of_its_own(corpus):
    """Records and text apart; two processes read halves of a part at the shift that one would read all of it."""
    given = {"random_shift": True, "accumulate": 2}
    drawn = [part.shift for step in range(30) for part in parts(corpus, step=step, **given)]
    assert set(drawn) == {0, 1, 2, 3}
    records, text = np.array(drawn).reshape(30, 2, 2).transpose(1, 0, 2)
    assert (records != text).any()
    assert (records[:, 0] != records[:, 1]).any()
    one = [part.shift for part in parts(corpus, step=5, random_shift=True)]
    for process in range(2):
        shared = parts(corpus, step=5, random_shift=True, process=process, processes=2)
        assert [part.shift for part in shared] == one
    assert {part.shift for part in parts(corpus, accumulate=2)} == {0}
