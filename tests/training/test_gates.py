"""Gates of window pools: watched, evened out, moved."""

import pytest
import torch

from phasescope.grid import WindowGrid
from phasescope.models import Compression
from phasescope.training import Training
from phasescope.training.gates import compressors_of, imbalance, mean_weights, moved, reading_raw, watched
from phasescope.training.trainer import new_model
from tests.builders.corpora import SHAPE, made_task


def model_of(**grid):
    """A model of two heads whose gates prefer some slots."""
    plan = Compression(**{"compressor": "scalar_gate", "width": 8, "stride": 4, **grid})
    model = new_model(Training(**SHAPE, task=made_task(), compression=plan))
    with torch.no_grad():
        for compressor in compressors_of(model):
            bias = compressor.slot_bias
            bias.copy_(torch.randn(bias.shape, generator=torch.Generator().manual_seed(0)))
    return model.eval()


def ids(tokens=21, rows=2):
    return torch.randint(0, 28, (rows, tokens), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("width", "stride", "shift"), [(4, 4, 0), (8, 4, 0), (8, 4, 5), (8, 8, 3)])
def test_uniform_gates_are_even_and_one_phase_is_as_uneven_as_can_be(width, stride, shift):
    """0, and S − 1, wherever the grid lies."""
    grids = [[WindowGrid(width, stride, shift)] * 2] * 3
    even = [torch.full((2, width), 1 / width)] * 3
    assert imbalance(even, grids).item() == pytest.approx(0, abs=1e-6)
    one = torch.zeros(2, width)
    one[:, (1 + shift) % stride] = 1.0
    assert imbalance([one] * 3, grids).item() == pytest.approx(stride - 1, rel=1e-5)


def test_heads_and_layers_share_the_phases_between_them_and_shifts_count():
    """Four heads of one slot each are even if their slots lie on different phases, by slot or by shift."""
    slots = torch.eye(4)
    unmoved = [[WindowGrid(4, 4)] * 2] * 2
    assert imbalance([slots[:2], slots[2:]], unmoved).item() == pytest.approx(0, abs=1e-6)
    same = slots[:1].expand(2, 4)
    assert imbalance([same, same], unmoved).item() == pytest.approx(3)
    staggered = [[WindowGrid(4, 4, 0), WindowGrid(4, 4, 1)], [WindowGrid(4, 4, 2), WindowGrid(4, 4, 3)]]
    assert imbalance([same, same], staggered).item() == pytest.approx(0, abs=1e-6)


def test_the_penalty_pulls_gates_towards_even():
    """A step along its gradient, through the tally of a forward, lowers it."""
    model = model_of(stride=8)
    found = compressors_of(model)

    def uneven():
        with watched(model) as tallies:
            model(input_ids=ids(), use_cache=False)
        return imbalance([torch.stack(tally).mean(0) for tally in tallies], [c.grids for c in found])

    before = uneven()
    before.backward()
    with torch.no_grad():
        found[0].slot_bias -= 0.5 * found[0].slot_bias.grad
    assert uneven() < before


@pytest.mark.parametrize("shift", [0, 3, ((0, 3),)])
def test_watched_weights_sum_to_one_per_head_and_are_those_of_the_gate(shift):
    """Also where windows reach back before the first token, and when the prompt is read in parts."""
    model = model_of(shift=shift)
    with watched(model) as tallies, torch.no_grad():
        whole = model(input_ids=ids())
    (tally,) = tallies
    assert len(tally) == 1
    assert mean_weights(tally).sum(1).tolist() == pytest.approx([1.0, 1.0])
    (compressor,) = compressors_of(model)
    assert compressor.tally is None
    with watched(model) as tallies, torch.no_grad():
        cache = None
        for part in ids().split(3, dim=1):
            cache = model(input_ids=part, past_key_values=cache).past_key_values
    assert mean_weights(tallies[0]).sum(1).tolist() == pytest.approx([1.0, 1.0])
    with torch.no_grad():
        again = model(input_ids=ids())
    assert torch.equal(whole.logits, again.logits)


def test_the_mean_weight_of_a_slot_is_the_mean_over_windows_and_rows():
    """By hand, window by window."""
    model = model_of(width=4)
    (compressor,) = compressors_of(model)
    hidden = []
    handle = compressor.gate.register_forward_pre_hook(lambda _, given: hidden.append(given[0]))
    with watched(model) as tallies, torch.no_grad():
        model(input_ids=ids(tokens=10))
    handle.remove()
    logits_BTH = hidden[0] @ compressor.gate.weight.T
    expected = torch.zeros(2, 4)
    for row in range(2):
        for window in range(2):
            logits_WH = logits_BTH[row, 4 * window : 4 * window + 4] + compressor.slot_bias[..., 0].T
            expected += logits_WH.softmax(0).T / 4
    assert torch.allclose(tallies[0][0], expected, atol=1e-6)


@pytest.mark.parametrize("by", [0, 1, 3])
@pytest.mark.parametrize("base", [0, 2, ((0, 3),)])
def test_a_moved_model_equals_one_built_with_that_shift_and_moves_back(base, by):
    """Logits are bit for bit those of the shifted model; afterwards the grids are what they were."""
    model = model_of(width=4, shift=base)
    before = compressors_of(model)[0].grids
    shifts = [(grid.shift + by) % 4 for grid in before]
    built = model_of(width=4, shift=(tuple(shifts),))
    with torch.no_grad():
        with moved(model, by):
            there = model(input_ids=ids()).logits
        assert torch.equal(there, built(input_ids=ids()).logits)
    assert compressors_of(model)[0].grids == before


def test_grids_are_moved_back_even_after_an_error():
    """The next forward reads the grid of the settings."""
    model = model_of()
    before = compressors_of(model)[0].grids
    with pytest.raises(RuntimeError, match="no"), moved(model, 2):
        raise RuntimeError("no")
    assert compressors_of(model)[0].grids == before


def test_whole_strides_of_a_shift_stay_where_the_window_is_wide_enough():
    """Window 0 keeps at least one real token."""
    model = model_of(width=10, shift=9)
    (compressor,) = compressors_of(model)
    seen = []
    for by in range(4):
        with moved(model, by):
            seen.append(compressor.grids[0].shift)
    assert seen == [9, 6, 7, 8]


@pytest.mark.parametrize("grid", [{}, {"stride": 8, "shift": 3}, {"compressor": "dynamic", "width": 16}])
def test_reading_raw_is_full_attention_on_the_same_weights(grid):
    """No entry is read, and afterwards all are again."""
    plan = Compression(**{"compressor": "scalar_gate", "width": 8, "stride": 4, **grid})
    settings = Training(**SHAPE, task=made_task(), compression=plan, shared_start=True)
    model, plain = (
        new_model(settings).eval(),
        new_model(settings.model_copy(update={"compression": None})).eval(),
    )
    folded = model(input_ids=ids(40), use_cache=False).logits
    with reading_raw(model):
        raw = model(input_ids=ids(40), use_cache=False).logits
    torch.testing.assert_close(raw, plain(input_ids=ids(40), use_cache=False).logits)
    assert (raw - folded).abs().max() > 1e-4
    assert torch.equal(model(input_ids=ids(40), use_cache=False).logits, folded)


def test_rows_of_one_seed_start_from_the_same_weights_where_asked():
    """All but the compressors' own; without it the draws differ."""
    plan = Compression(compressor="scalar_gate", width=8, stride=4)
    made = {"task": made_task(), **SHAPE}
    plain = dict(new_model(Training(**made)).named_parameters())
    for shared in (True, False):
        own = dict(new_model(Training(**made, compression=plan, shared_start=shared)).named_parameters())
        alike = all(torch.equal(param, own[name]) for name, param in plain.items())
        assert alike is shared
        assert any(".compressor." in name for name in own)


def test_a_gate_without_slots_learns_from_content_alone():
    """Its bias stays zero while the rest of it moves."""
    plan = Compression(compressor="scalar_gate", width=4, stride=4, settings={"slots": False})
    model = new_model(Training(**SHAPE, task=made_task(), compression=plan))
    model(input_ids=ids(), use_cache=False).logits.square().mean().backward()
    (compressor,) = compressors_of(model)
    assert compressor.slot_bias.grad is None
    assert not compressor.slot_bias.any()
    assert compressor.gate.weight.grad.abs().max() > 0
