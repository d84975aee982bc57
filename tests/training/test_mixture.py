"""The mixture's loss against its plain form."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from phasescope.models import Compression
from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import RetrievalTask, Training
from phasescope.training.data import IGNORED
from phasescope.training.mixture import Part, loss_of
from phasescope.training.trainer import new_model

TASK = RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(4, 8, 8), fillers=8)
SETTINGS = Training(
    compression=Compression(compressor="scalar_gate", width=4, stride=4),
    task=TASK,
    hidden_size=32,
    heads=2,
    kv_heads=1,
    head_dim=16,
    max_pairs=8,
)


def parts():
    records = TASK.batch(3, 5, np.random.default_rng(0))
    text = np.random.default_rng(1).integers(0, 20, size=(3, 19))
    labels = text.copy()
    labels[:, 0] = IGNORED
    return [
        Part(kind, *map(torch.from_numpy, pair), 1.0)
        for kind, pair in (("r", records), ("t", (text, labels)))
    ]


@pytest.mark.parametrize("part", parts(), ids=["records", "text"])
def test_the_loss_and_its_gradients_are_those_of_all_logits(part):
    """Logits of scored tokens alone change nothing but rounding."""
    model = new_model(SETTINGS).double()
    loss, hits, losses_BK = loss_of(model, part, torch.device("cpu"))
    loss.backward()
    found = {name: param.grad.clone() for name, param in model.named_parameters()}
    model.zero_grad()
    logits_BTV = model(input_ids=part.ids_BT, use_cache=False).logits[:, :-1]
    target_BT = part.labels_BT[:, 1:]
    plain = cross_entropy(logits_BTV.flatten(0, 1), target_BT.flatten(), ignore_index=IGNORED)
    plain.backward()
    right = (logits_BTV.argmax(-1) == target_BT)[target_BT != IGNORED]
    assert loss.item() == pytest.approx(plain.item(), rel=1e-6)
    assert losses_BK.mean().item() == pytest.approx(plain.item(), rel=1e-6)
    assert hits.item() == pytest.approx(right.double().mean().item(), abs=1e-6)
    for name, param in model.named_parameters():
        assert torch.allclose(found[name], param.grad, atol=1e-6), name


def test_rows_that_carry_loss_in_different_places_are_refused():
    """One list of places serves all rows."""
    part = parts()[0]
    part.labels_BT[1, -1] = IGNORED
    with pytest.raises(ValueError, match="different places"):
        loss_of(new_model(SETTINGS), part, torch.device("cpu"))
