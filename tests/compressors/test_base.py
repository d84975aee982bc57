"""Pooling over windows: hand-computed entries, bounds and cover."""

import pytest
import torch

from phasescope import UsageError, WindowGrid
from phasescope.compressors.base import NEVER, cut_windows, first_visible, window_bounds
from phasescope.compressors.scalar_gate import ScalarGate
from phasescope.compressors.uniform import Uniform
from phasescope.compressors.vector_gate import VectorGate

CPU = torch.device("cpu")
GRIDS = [
    WindowGrid(8, 8),
    WindowGrid(8, 4),
    WindowGrid(8, 4, 4),
    WindowGrid(12, 5, 11),
    WindowGrid(3, 7, 2),
    WindowGrid(1, 1),
]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_first_cover_is_when_the_earliest_window_of_a_token_closes(grid):
    """The vectorised form agrees with the grid's own account of which windows hold a token."""
    covered = first_visible([grid], 50, CPU)[0].tolist()
    for token in range(50):
        windows = grid.windows_of(token)
        assert covered[token] == (grid.closes(windows[0]) if windows else NEVER)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_windows_hold_the_tokens_that_the_grid_names(grid):
    """Each slot of a cut window is the token at start + slot, and zero before the sequence."""
    tokens = torch.arange(1.0, 41.0)[None, None, :, None]
    windows = cut_windows(tokens, [grid])
    assert windows.shape == (1, 1, grid.closed(40), grid.width, 1)
    for window in range(grid.closed(40)):
        expected = [max(0, grid.start(window) + slot + 1) for slot in range(grid.width)]
        assert windows[0, 0, window, :, 0].tolist() == expected


def test_heads_with_fewer_windows_are_filled_up_with_entries_that_never_close():
    """A head whose shift leaves one window less gets a slot that no query sees."""
    grids = [WindowGrid(4, 4), WindowGrid(4, 4, 1)]
    _, closes = window_bounds(grids, 15, CPU)
    assert closes.tolist() == [[3, 7, 11, NEVER], [2, 6, 10, 14]]


def test_uniform_pools_to_the_plain_mean_and_shifted_first_windows_divide_by_their_real_tokens():
    """Window 0 of a grid moved back by one has three real tokens out of four."""
    key = torch.arange(8.0).view(1, 1, 8, 1)
    pool = Uniform([WindowGrid(4, 4, 1)], hidden_size=2, head_dim=1)
    entries = pool.entries(key, 10 * key, pool.state_BHTG(torch.zeros(1, 8, 2)))
    assert entries.key_BHND.flatten().tolist() == [1.0, 4.5]
    assert entries.value_BHND.flatten().tolist() == [10.0, 45.0]
    assert entries.position_BHN.tolist() == [[[0, 3]]]


@pytest.mark.parametrize(("compressor", "channels"), [(ScalarGate, 1), (VectorGate, 3)])
def test_gated_entries_follow_the_formula(compressor, channels):
    """Entries equal the softmax-weighted sums written out window by window in float64."""
    torch.manual_seed(0)
    grid = WindowGrid(4, 2)
    pool = compressor([grid, grid], hidden_size=5, head_dim=3).double()
    torch.nn.init.normal_(pool.slot_bias)
    hidden, key, value = (
        torch.randn(s, dtype=torch.float64) for s in [(1, 9, 5), (1, 2, 9, 3), (1, 2, 9, 3)]
    )
    with torch.no_grad():
        entries = pool.entries(key, value, pool.state_BHTG(hidden))
        u = pool.gate.weight.view(2, channels, 5)
        for head in range(2):
            for window in range(grid.closed(9)):
                tokens = range(grid.start(window), grid.closes(window) + 1)
                logits = torch.stack(
                    [u[head] @ hidden[0, t] + pool.slot_bias[head, s] for s, t in enumerate(tokens)]
                )
                weight = logits.softmax(0)
                for mine, payload in ((entries.key_BHND, key), (entries.value_BHND, value)):
                    expected = sum(weight[s] * payload[0, head, t] for s, t in enumerate(tokens))
                    torch.testing.assert_close(mine[0, head, window], expected, rtol=1e-6, atol=1e-7)


def test_heads_of_one_layer_must_share_width_and_stride():
    """Grids that could not be stacked are refused in one line."""
    with pytest.raises(UsageError, match="share width and stride"):
        Uniform([WindowGrid(4, 4), WindowGrid(8, 8)], hidden_size=2, head_dim=1)
