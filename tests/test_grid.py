"""WindowGrid against a brute-force reading of its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasescope import UsageError, WindowGrid
from phasescope.grid import NEVER, common_stride

grids = st.integers(1, 12).flatmap(
    lambda width: st.builds(WindowGrid, st.just(width), st.integers(1, 12), st.integers(0, width - 1))
)


@given(grids, st.integers(0, 60))
def test_windows_of_a_token_are_those_that_reach_it(grid: WindowGrid, position: int) -> None:
    """A window holds a token iff the token lies between the window's start and its close."""
    holding = [window for window in range(200) if grid.start(window) <= position <= grid.closes(window)]
    assert list(grid.windows_of(position)) == holding


@given(grids, st.integers(0, 60))
def test_closed_counts_the_windows_that_have_read_their_last_token(grid: WindowGrid, tokens: int) -> None:
    """After `tokens` tokens the last index read is tokens − 1; a window is closed iff it closes by then."""
    assert grid.closed(tokens) == sum(grid.closes(window) <= tokens - 1 for window in range(200))


@given(grids, st.integers(0, 60))
def test_the_phase_repeats_every_stride_and_is_zero_at_a_start(grid: WindowGrid, position: int) -> None:
    """Phase counts tokens from the latest window start, whatever the shift."""
    assert grid.phase(position + grid.stride) == grid.phase(position)
    assert grid.phase(grid.start(100)) == 0
    assert grid.phase(grid.start(100) + grid.stride - 1) == grid.stride - 1


@given(grids)
def test_the_first_window_holds_a_real_token(grid: WindowGrid) -> None:
    """However far the grid is moved back, window 0 reaches token 0."""
    assert 0 in grid.windows_of(0)
    assert grid.closes(0) >= 0


@pytest.mark.parametrize("closing", [True, False])
@given(grids)
def test_the_longest_wait_is_the_most_tokens_that_no_visible_entry_holds(
    closing: bool, grid: WindowGrid
) -> None:
    """Counted query by query; between windows with gaps tokens wait for ever."""
    if grid.width < grid.stride:
        assert grid.longest_wait(closing=closing) == NEVER
        return
    waits = []
    for query in range(3 * (grid.width + grid.stride)):
        windows = grid.closed(query + closing)
        waits.append(query + 1 - (grid.closes(windows - 1) + 1 if windows else 0))
    assert grid.longest_wait(closing=closing) == max(waits)


def test_phases_of_an_array_are_those_of_its_elements() -> None:
    """One call folds a whole run."""
    grid = WindowGrid(8, 4, 3)
    positions = np.arange(50)
    assert grid.phase(positions).tolist() == [grid.phase(int(position)) for position in positions]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4), "1 to 1,048,576 tokens"),
        ((4, 0), "1 to 1,048,576 tokens"),
        ((4, 10**9), "1 to 1,048,576 tokens"),
        ((8, 4, 8), "below the width"),
        ((8, 4, -1), "below the width"),
        ((8.0, 4), "whole number"),
        ((True, 4), "whole number"),
    ],
)
def test_an_impossible_grid_is_refused_in_one_line(arguments: tuple[int, ...], message: str) -> None:
    """The message says what was given and what is allowed."""
    with pytest.raises(UsageError, match=message) as caught:
        WindowGrid(*arguments)
    assert "\n" not in str(caught.value)


def test_a_grid_prints_as_the_paper_writes_it() -> None:
    """W8/S4, with the shift only where there is one."""
    assert (str(WindowGrid(8, 4)), str(WindowGrid(8, 4, 4))) == ("W8/S4", "W8/S4+4")


@pytest.mark.parametrize("grid", [WindowGrid(8, 4, 4), WindowGrid(12, 12), WindowGrid(1, 3)])
def test_a_grid_reads_back_from_how_it_is_written(grid: WindowGrid) -> None:
    """In either case, with blanks around."""
    assert WindowGrid.parse(str(grid)) == WindowGrid.parse(f" {str(grid).lower()} ") == grid


@pytest.mark.parametrize(
    "text", ["", "8/4", "W8", "W8/S4+", "W8/S4+x", "W-8/S4", "W8/S4 W8/S4", "W٨/S4", f"W{10**20}/S4"]
)
def test_a_grid_written_otherwise_is_refused_with_an_example(text: str) -> None:
    """One line."""
    with pytest.raises(UsageError, match="write W8/S4, or W8/S4\\+4"):
        WindowGrid.parse(text)


@pytest.mark.parametrize(
    ("strides", "residues", "together"),
    [
        ([], 24, None),
        ([1], 24, None),
        ([4], 24, 4),
        ([4, 1], 24, 4),
        ([4, 128], 24, 4),
        ([4, 128], 128, 128),
        ([6, 4], 24, 12),
        ([6, 4], 8, 4),
        ([128], 24, 128),
    ],
)
def test_grids_repeat_together_after_their_least_common_multiple(strides, residues, together):
    """As long as the layouts visit all its phases; stride 1 folds nothing."""
    assert common_stride(strides, residues) == together
