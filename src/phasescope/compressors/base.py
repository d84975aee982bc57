"""What every compressor shares: entries with the one causal rule, and pooling over windows of a grid.

Shape suffixes: B batch, T tokens, N entries, W window slot, H KV heads, D channels of a head,
E model width, G gate channels (0 uniform, 1 scalar, D vector), C any channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..errors import UsageError
from ..grid import WindowGrid

NEVER = torch.iinfo(torch.int64).max  # `closes` of a slot that holds no entry


@dataclass(frozen=True, slots=True)
class Entries:
    """Compressed cache entries of one layer.

    Attributes:
        key_BHND: entry keys before rotary embedding.
        value_BHND: entry values.
        position_HN: the token position at which an entry's key is rotated.
        closes_HN: index of the entry's last token. An entry is visible to the query at position q iff
            closes <= q; heads with fewer entries than others are filled up with `NEVER`.
        covered_HT: for each token, the first query position that sees it through an entry: the smallest
            `closes` of the windows that hold it; `NEVER` where none does.
    """

    key_BHND: Tensor
    value_BHND: Tensor
    position_HN: Tensor
    closes_HN: Tensor
    covered_HT: Tensor

    def since(self, tokens: int) -> Entries:
        """Without the entries that were complete after the first `tokens` tokens."""
        fresh_HN = self.closes_HN >= tokens
        fresh_N = fresh_HN.any(dim=0)
        return Entries(
            key_BHND=self.key_BHND[:, :, fresh_N],
            value_BHND=self.value_BHND[:, :, fresh_N],
            position_HN=self.position_HN[:, fresh_N],
            closes_HN=self.closes_HN.masked_fill(~fresh_HN, NEVER)[:, fresh_N],
            covered_HT=self.covered_HT,
        )


class AbstractCompressor(nn.Module, ABC):
    """Folds the tokens of one attention layer into entries, head by head.

    A compressor first turns each token into a *state* (whatever it needs beside key and value; the cache
    keeps it), and later makes entries from the states, keys and values of a prefix of the sequence. The
    state of a token may depend on nothing but that token, so that reading in parts equals reading at once.

    Args:
        grids: one grid per KV head.
        hidden_size: model width E.
        head_dim: channels D of a head.

    Attributes:
        breaks: laws of the conformance suite that this method is meant to break, each with the reason.
    """

    breaks: ClassVar[dict[str, str]] = {}

    def __init__(self, grids: Sequence[WindowGrid], hidden_size: int, head_dim: int) -> None:
        super().__init__()
        if len({(grid.width, grid.stride) for grid in grids}) != 1:
            raise UsageError(
                f"heads of one layer share width and stride and differ in shift; got {list(map(str, grids))}"
            )
        self.grids = tuple(grids)

    @abstractmethod
    def state_BHTG(self, hidden_BTE: Tensor) -> Tensor:
        """What the cache must keep of each token beside its key and value; G may be 0."""

    @abstractmethod
    def entries(self, key_BHTD: Tensor, value_BHTD: Tensor, state_BHTG: Tensor) -> Entries:
        """The entries whose windows are complete within these T tokens, which begin at position 0."""

    def settled(self, tokens: int) -> int:
        """Up to which position no query after the first `tokens` tokens needs a token of its own.

        Each token before it is covered by a complete window and belongs to no incomplete one, in every head.
        0 is always right; more lets a cache forget.
        """
        return 0

    def resumes(self, position: int) -> int:
        """From where `entries` must read to see every window that holds a token from `position` on.

        Read from there, windows must fall on the same tokens as when they are read from position 0.
        """
        return 0


class AbstractWindowPool(AbstractCompressor):
    """A weighted mean over each window of a grid; a subclass says only how many gate channels there are.

        a_t = softmax over the window's tokens of (u·h_t + b[slot])      slot = t − window start
        K_j = Σ_t a_t ⊙ k_t        V_j = Σ_t a_t ⊙ v_t

    Keys are pooled before rotary embedding, and the entry is rotated at the window's first real token.

    Source: arXiv 2609.36322.
    Differs: the gate reads the layer's normed input h; u is one linear map without bias per KV head and b
        starts at zero, so that training starts from a nearly uniform gate. Neither is spelled out there.
    """

    def __init__(self, grids: Sequence[WindowGrid], hidden_size: int, head_dim: int) -> None:
        super().__init__(grids, hidden_size, head_dim)
        self.channels = self.gate_channels(head_dim)
        self.gate: nn.Linear | None = None
        if self.channels:
            heads, width = len(self.grids), self.grids[0].width
            self.gate = nn.Linear(hidden_size, heads * self.channels, bias=False)
            self.slot_bias = nn.Parameter(torch.zeros(heads, width, self.channels))

    @staticmethod
    @abstractmethod
    def gate_channels(head_dim: int) -> int:
        """Gate weights per token and head: 0 for none, 1 for a scalar, `head_dim` for a vector."""

    def state_BHTG(self, hidden_BTE: Tensor) -> Tensor:
        """The content part u·h_t of each token's gate logits."""
        batch, tokens, _ = hidden_BTE.shape
        if self.gate is None:
            return hidden_BTE.new_empty(batch, len(self.grids), tokens, 0)
        return self.gate(hidden_BTE).view(batch, tokens, len(self.grids), self.channels).transpose(1, 2)

    def settled(self, tokens: int) -> int:
        """The first token of the earliest incomplete window.

        0 where gaps lie between windows, and for a method whose entries depend on where they are read from.
        """
        if self.grids[0].width < self.grids[0].stride or "period" in self.breaks:
            return 0
        return max(0, min(grid.start(grid.closed(tokens)) for grid in self.grids))

    def resumes(self, position: int) -> int:
        """A window's width before `position`, on the grid."""
        width, stride = self.grids[0].width, self.grids[0].stride
        return max(0, position - width + 1) // stride * stride

    def weights_BHNWC(self, state_BHNWG: Tensor, real_HNW: Tensor) -> Tensor:
        """The gate's weight of each slot: over the real tokens of a window the weights sum to 1."""
        if self.gate is None:
            logits_BHNWC = state_BHNWG.new_zeros(*state_BHNWG.shape[:-1], 1)
        else:
            logits_BHNWC = state_BHNWG + self.slot_bias[:, None]
        logits_BHNWC = logits_BHNWC.masked_fill(~real_HNW[..., None], -torch.inf)
        exact = torch.promote_types(logits_BHNWC.dtype, torch.float32)  # bf16 sums lose the small weights
        return logits_BHNWC.softmax(dim=3, dtype=exact).to(state_BHNWG.dtype)

    def entries(self, key_BHTD: Tensor, value_BHTD: Tensor, state_BHTG: Tensor) -> Entries:
        """Pool every complete window; see the class for the formula."""
        tokens = key_BHTD.shape[2]
        start_HN, closes_HN = window_bounds(self.grids, tokens, key_BHTD.device)
        slot_W = torch.arange(self.grids[0].width, device=key_BHTD.device)
        real_HNW = (start_HN[..., None] + slot_W >= 0) & (closes_HN < NEVER)[..., None]
        # A slot row that holds no window would make a softmax over nothing: let it read its padding.
        real_HNW = real_HNW | (closes_HN == NEVER)[..., None]
        payload_BHNWC = cut_windows(torch.cat([key_BHTD, value_BHTD, state_BHTG], dim=-1), self.grids)
        dim = key_BHTD.shape[-1]
        key_BHNWD, value_BHNWD, state_BHNWG = payload_BHNWC.split([dim, dim, state_BHTG.shape[-1]], dim=-1)
        weight_BHNWC = self.weights_BHNWC(state_BHNWG, real_HNW)
        return Entries(
            key_BHND=(weight_BHNWC * key_BHNWD).sum(3),
            value_BHND=(weight_BHNWC * value_BHNWD).sum(3),
            position_HN=start_HN.clamp(min=0),
            closes_HN=closes_HN,
            covered_HT=first_cover(self.grids, tokens, key_BHTD.device),
        )


def moved(closes: Tensor, start: int) -> Tensor:
    """`closes` of tokens that begin at position `start`, where they were counted from 0."""
    return torch.where(closes == NEVER, NEVER, closes + start)


def window_bounds(grids: Sequence[WindowGrid], tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First and last token index of every complete window, [H, N]; `NEVER` closes a missing one."""
    counts_H = torch.tensor([grid.closed(tokens) for grid in grids], device=device)
    shift_H = torch.tensor([grid.shift for grid in grids], device=device)
    window_N = torch.arange(int(counts_H.max()), device=device)
    start_HN = window_N * grids[0].stride - shift_H[:, None]
    closes_HN = start_HN + grids[0].width - 1
    return start_HN, closes_HN.masked_fill(window_N >= counts_H[:, None], NEVER)


def first_cover(grids: Sequence[WindowGrid], tokens: int, device: torch.device) -> Tensor:
    """The `closes` of the earliest window that holds each token, [H, T]; `NEVER` between windows."""
    width, stride = grids[0].width, grids[0].stride
    shift_H1 = torch.tensor([[grid.shift] for grid in grids], device=device)
    token_T = torch.arange(tokens, device=device)
    window_HT = (-((width - 1 - token_T - shift_H1) // stride)).clamp(min=0)
    start_HT = window_HT * stride - shift_H1
    return (start_HT + width - 1).masked_fill(start_HT > token_T, NEVER)


def cut_windows(x_BHTC: Tensor, grids: Sequence[WindowGrid]) -> Tensor:
    """Cut tokens into the complete windows of each head's grid, [B, H, N, W, C].

    Slots before token 0, and the rows of heads that have fewer windows than others, hold zeros.
    """
    tokens = x_BHTC.shape[2]
    most = max(grid.closed(tokens) for grid in grids)
    if len(set(grids)) == 1:
        return _cut(x_BHTC, grids[0], most)
    heads = [_cut(x_BHTC[:, head : head + 1], grid, most) for head, grid in enumerate(grids)]
    return torch.cat(heads, dim=1)


def _cut(x_BHTC: Tensor, grid: WindowGrid, windows: int) -> Tensor:
    if windows == 0:
        return x_BHTC.new_empty(*x_BHTC.shape[:2], 0, grid.width, x_BHTC.shape[-1])
    end = grid.closes(windows - 1) + 1
    missing = max(0, end - x_BHTC.shape[2])
    padded = pad(x_BHTC[:, :, : min(end, x_BHTC.shape[2])], (0, 0, grid.shift, missing))
    return padded.unfold(2, grid.width, grid.stride).transpose(3, 4)
