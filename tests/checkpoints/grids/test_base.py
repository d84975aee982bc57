"""What follows from layers and folds: strides, joint period, reach, unread tokens, the verdict."""

import pytest

from phasescope import WindowGrid
from phasescope.checkpoints.grids import Fold, Layer, Target, alike, ranges


def target(*folds: Fold, **facts: object) -> Target:
    """A target whose layer i has fold i."""
    layers = tuple(Layer(i, f"kind {fold.does}", (fold,)) for i, fold in enumerate(folds))
    return Target("t", "T", layers, **facts)  # type: ignore[arg-type]


def pooled(width: int, stride: int, raw: int | None, shift: int = 0) -> Fold:
    return Fold("pooled content", WindowGrid(width, stride, shift), "slot", raw, raw=raw)


def test_the_joint_period_is_the_least_common_multiple_of_the_strides() -> None:
    """Strides 6 and 4 repeat together after 12 tokens; the reach is the smallest one."""
    both = target(pooled(6, 6, 64), pooled(4, 4, 32))
    assert (both.strides, both.period, both.reach, both.control) == ((4, 6), 12, 32, False)
    assert (
        both.verdict == "phase-sensitive by construction beyond 32 tokens: strides 4 and 6; joint period 12"
    )


@pytest.mark.parametrize(("raw", "lost"), [(6, 1), (7, 0), (8, 0), (0, 7)])
def test_a_hole_is_what_waits_longer_than_it_is_read_raw(raw: int, lost: int) -> None:
    """With stride 8 up to 7 tokens, the query's own included, wait; a sliding window of 7 is enough."""
    fold = pooled(8, 8, raw)
    assert fold.unread == lost
    assert len(target(fold).holes) == (1 if lost else 0)


def test_the_hole_of_a_stride_is_what_a_brute_count_finds() -> None:
    """For every query: the tokens that no closed window holds and the sliding window misses."""
    for width, stride, shift in [(8, 4, 4), (8, 8, 0), (12, 6, 0), (5, 3, 2), (16, 4, 3)]:
        grid = WindowGrid(width, stride, shift)
        for raw in range(0, 20):
            most = 0
            for query in range(6 * width):
                read = {
                    t for w in range(grid.closed(query + 1)) for t in range(grid.start(w), grid.closes(w) + 1)
                }
                read |= set(range(query - raw + 1, query + 1))
                most = max(most, sum(t not in read for t in range(query + 1)))
            assert pooled(width, stride, raw, shift).unread == most


def test_holes_name_the_layers_and_what_would_close_them() -> None:
    """Only layers with a window that is too wide."""
    holes = target(pooled(4, 4, 16), pooled(64, 64, 16), pooled(64, 64, 16)).holes
    assert [hole.layers for hole in holes] == [(1, 2)]
    assert "47 tokens" in holes[0].why
    assert "63 would leave none unread" in holes[0].why


def test_gaps_between_windows_are_a_hole_without_end() -> None:
    """Tokens between windows never get into an entry."""
    assert "between windows" in target(pooled(2, 4, 8)).holes[0].why


def test_selection_alone_says_so_and_content_windows_have_no_stride() -> None:
    """The verdict tells what the grid does where content is left alone."""
    chosen = Fold("selection", WindowGrid(64, 64), "slot", 2048)
    assert target(chosen).verdict.endswith("beyond 2,048 tokens: stride 64 (selection only)")
    free = Fold("pooled content", None, "content", 0)
    assert (target(free).status, target(free).known_grids) == ("content", None)


def test_a_model_without_a_grid_is_a_control_and_an_unknown_one_is_not() -> None:
    """Known to have none, and not known to have one, are told apart."""
    none, unknown = Target("t", "T", without="dense attention"), Target("t", "")
    assert none.control
    assert none.known_grids == []
    assert not unknown.control
    assert unknown.known_grids is None
    assert unknown.verdict.startswith("unknown")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1), "0, 1"),
        ((0, 1, 2), "0–2"),
        ((2, 4, 6, 8), "2, 4, …, 8"),
        ((0, 1, 2, 5, 7, 8), "0–2, 5, 7–8"),
    ],
)
def test_layer_numbers_in_few_words(numbers: tuple[int, ...], said: str) -> None:
    """Runs and steps are shortened."""
    assert ranges(numbers) == said


def test_layers_that_are_alike_are_told_once() -> None:
    """In the order in which their kinds first come."""
    fold = pooled(4, 4, 8)
    layers = [Layer(0, "a"), Layer(1, "b", (fold,)), Layer(2, "a"), Layer(3, "b", (fold,))]
    assert [(layer.kind, numbers) for layer, numbers in alike(layers)] == [("a", (0, 2)), ("b", (1, 3))]
