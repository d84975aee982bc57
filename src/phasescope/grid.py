"""The token grid on which a chunked KV cache folds its entries, and the phase it gives each token."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self, overload

import numpy as np
import numpy.typing as npt

from .errors import UsageError

NEVER = 2**31 - 1
"""`closes` of a window that does not exist, and the wait for it; caches keep it in 32 bits."""
WIDEST = 2**20
"""The largest width and stride of a grid, in tokens; larger ones would only fill the memory."""
RESIDUES = 24
"""How many residues the layouts of a protocol visit that does not say so itself."""


@dataclass(frozen=True, slots=True)
class WindowGrid:
    """Windows of `width` tokens that start every `stride` tokens, moved back by `shift`.

    Window j = 0, 1, … covers the tokens from j·stride − shift to j·stride − shift + width − 1, both
    included; of a window that begins before token 0 only the real tokens count. Windows overlap when
    width > stride.

        phase(t)  = (t + shift) mod stride
        closes(j) = j·stride − shift + width − 1        the index of the window's last token

    Args:
        width: tokens per window, 1 to `WIDEST`.
        stride: tokens from one window's start to the next, 1 to `WIDEST`.
        shift: tokens by which the grid is moved back; below `width`, so that window 0 is never empty.

    Raises:
        UsageError: for numbers outside these ranges.

    Source: arXiv 2609.36322 for width, stride and phase.
    Differs: `shift` may reach beyond the stride, so that DeepSeek-V4's CSA, whose window 0 has no left
        half, is WindowGrid(width=8, stride=4, shift=4).
    """

    width: int
    stride: int
    shift: int = 0

    # In files a grid is an object of these three numbers; text or a fraction is not taken for one.
    __pydantic_config__: ClassVar[dict[str, bool]] = {"strict": True}

    def __post_init__(self) -> None:
        for name in ("width", "stride", "shift"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"grid {name} is {value!r}; give a whole number")
        if not (1 <= self.width <= WIDEST and 1 <= self.stride <= WIDEST):
            raise UsageError(
                f"grid of width {self.width} and stride {self.stride}: both must be 1 to {WIDEST:,} tokens"
            )
        if not 0 <= self.shift < self.width:
            raise UsageError(
                f"grid shift {self.shift} is outside 0 to {self.width - 1}; it must be below the width"
            )

    @overload
    def phase(self, position: int) -> int: ...
    @overload
    def phase(self, position: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]: ...
    def phase(self, position: int | npt.NDArray[np.integer]) -> int | npt.NDArray[np.integer]:
        """The phase of a token position (or an array of them): 0 to stride − 1."""
        return (position + self.shift) % self.stride

    def start(self, window: int) -> int:
        """The index of the window's first token; negative where it begins before the sequence."""
        return window * self.stride - self.shift

    def closes(self, window: int) -> int:
        """The index of the window's last token: the entry is visible to queries from here, or the next, on."""
        return self.start(window) + self.width - 1

    def closed(self, tokens: int) -> int:
        """How many windows are complete once `tokens` tokens have been read."""
        return max(0, (tokens - self.width + self.shift) // self.stride + 1)

    def longest_wait(self, *, closing: bool = True) -> int:
        """The most tokens up to a query, its own included, that no visible entry holds; `NEVER` with gaps.

        Args:
            closing: whether an entry is visible from the last token of its window on, or from the next.
        """
        if self.width < self.stride:
            return NEVER
        return max(self.stride, self.width - self.shift) - closing

    def windows_of(self, position: int) -> range:
        """The windows that a token is folded into: one or more, or none when width < stride."""
        reach = position + self.shift
        first = max(0, -(-(reach - self.width + 1) // self.stride))
        return range(first, reach // self.stride + 1)

    @classmethod
    def parse(cls, text: str) -> Self:
        """A grid from how it is written: W8/S4, or W8/S4+4 with a shift.

        Raises:
            UsageError: for any other text.
        """
        written = re.fullmatch(
            r"W(\d{1,9})/S(\d{1,9})(?:\+(\d{1,9}))?", text.strip(), re.IGNORECASE | re.ASCII
        )
        if written is None:
            raise UsageError(f"grid {text!r}: write W8/S4, or W8/S4+4 with a shift of 4")
        width, stride, shift = (int(number or 0) for number in written.groups())
        return cls(width, stride, shift)

    def __str__(self) -> str:
        return f"W{self.width}/S{self.stride}" + (f"+{self.shift}" if self.shift else "")


def boundary_residues(grids: Iterable[WindowGrid], stride: int, *, closing: bool = True) -> list[int]:
    """Residues at which a boundary, and not what a gate weighs, loses a fact of two tokens, such as key and value.

    The fact is cut where no window holds both its tokens. Where an entry is visible to the token that closes its
    window, the value there no longer reads the key before it as it was: one more residue is lost.

    Args:
        grids: of the model; a fact is safe if any of them is.
        stride: modulus of the residues, a multiple of the grids' strides.
        closing: whether an entry is visible from the last token of its window on, or from the next.

    Returns:
        residues of the fact's first token, in rising order; none where windows overlap.
    """
    folding = [grid for grid in grids if grid.stride > 1 and stride % grid.stride == 0]
    if not folding:
        return []
    inside = {
        (start + token) % stride
        for grid in folding
        for start in range(-grid.shift % grid.stride, stride, grid.stride)
        for token in range(max(grid.width - 1 - closing * (grid.width <= grid.stride), 0))
    }
    return sorted(set(range(stride)) - inside)


def common_stride(strides: Iterable[int], residues: int = RESIDUES) -> int | None:
    """The stride by which the results of a model with one or several grids are folded.

    The least common multiple of the strides above 1, as long as the layouts of the protocol visit all its phases;
    else the smallest of them, whose windows are the most: DeepSeek-V4's 4 and 128 are folded by 4.

    Args:
        strides: of the model's grids, in any order; a stride of 1 folds nothing.
        residues: how many residues the layouts of the protocol visit.

    Returns:
        the stride, or None where nothing is folded.
    """
    folding = [stride for stride in strides if stride > 1]
    if not folding:
        return None
    together = math.lcm(*folding)
    return together if together <= residues else min(folding)
