"""What every compressor shares: entries with the one causal rule, and pooling over windows of a grid.

Shape suffixes: B batch, T tokens, N entries, W window slot, H KV heads, D channels of a head,
E model width, G gate channels (0 uniform, 1 scalar, D vector), C any channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..errors import UsageError
from ..grid import NEVER, WindowGrid


@dataclass(frozen=True, slots=True)
class Entries:
    """Compressed cache entries of one layer.

    The leading dimensions of the three integer tensors may be 1 where all rows, or all heads, agree.

    Attributes:
        key_BHND: entry keys before rotary embedding.
        value_BHND: entry values; the same tensor as the keys where key and value are shared.
        position_BHN: the token position at which an entry's key is rotated.
        last_token_BHN: index of the entry's last token, ascending. An entry is visible to the query at position
            q iff last_token <= q; heads with fewer entries than others are filled up with `NEVER`.
        visible_from_BHT: for each token, the first query position that sees it through an entry: the smallest
            last token of the windows that hold it; `NEVER` where none does.
        index_BHND: what an indexer compares its queries with, if there is one.
    """

    key_BHND: Tensor
    value_BHND: Tensor
    position_BHN: Tensor
    last_token_BHN: Tensor
    visible_from_BHT: Tensor
    index_BHND: Tensor | None = None

    def taken(self, index_BHN: Tensor) -> Entries:
        """The entries with these places, head by head; nothing is said about tokens any more."""

        def take(x: Tensor) -> Tensor:
            rows, heads = max(len(x), len(index_BHN)), max(x.shape[1], index_BHN.shape[1])
            place = index_BHN.reshape(*index_BHN.shape, *(1,) * (x.ndim - 3))
            x = x.expand(rows, heads, *x.shape[2:])
            return x.gather(2, place.expand(rows, heads, -1, *x.shape[3:]))

        key_BHND = take(self.key_BHND)
        return Entries(
            key_BHND,
            key_BHND if self.value_BHND is self.key_BHND else take(self.value_BHND),
            take(self.position_BHN),
            take(self.last_token_BHN),
            self.visible_from_BHT,
            None if self.index_BHND is None else take(self.index_BHND),
        )


class AbstractCompressor(nn.Module, ABC):
    """Compresses the tokens of one attention layer into entries, head by head.

    A compressor first turns each token into a *state* (whatever it needs beside key and value; the cache
    keeps it), and later makes entries from the states, keys and values of a stretch of the sequence. The
    state of a token may depend on nothing but that token, so that reading in parts equals reading at once.

    Args:
        grids: one grid per KV head.
        hidden_size: model width E.
        head_dim: channels D of a head.

    Attributes:
        breaks: laws of the conformance suite that this method is meant to break, each with the reason.
        binds: whether key and value of an entry must be one tensor.
        tail_only: whether the original reads no uncompressed token outside its sliding window; such a method
            refuses a `tail` that would leave a token unread.
        idle: no entry is made, and every token stays uncompressed: full attention, for a while.
    """

    breaks: ClassVar[dict[str, str]] = {}
    binds: ClassVar[bool] = False
    tail_only: ClassVar[bool] = False
    idle: bool = False

    def __init__(self, grids: Sequence[WindowGrid], hidden_size: int, head_dim: int) -> None:
        super().__init__()
        if len({(grid.width, grid.stride) for grid in grids}) != 1:
            raise UsageError(
                f"heads of one layer share width and stride and differ in shift; got {list(map(str, grids))}"
            )
        self.grids = tuple(grids)

    def initial(self) -> dict[str, Tensor]:
        """How the compressor's own parameters and buffers begin, where a checkpoint lacks them."""
        return {}

    @abstractmethod
    def state_BHTG(self, hidden_BTE: Tensor) -> Tensor:
        """What the cache must keep of each token beside its key and value; G may be 0."""

    @abstractmethod
    def entries(self, key_BHTD: Tensor, value_BHTD: Tensor, state_BHTG: Tensor) -> Entries:
        """The entries whose windows are complete within these T tokens, which begin at position 0."""

    def settled(self, tokens: int) -> int | None:
        """From where `entries` must be given the tokens again, once `tokens` tokens have been read.

        Every window that is not complete by then must come out of `entries` as if it had been given the whole
        sequence, with this position as its 0. 0 is always right; more lets a cache forget. None stands for
        the token after the last complete window, of each row for itself.
        """
        return 0

    def complete(self, tokens: int) -> int | None:
        """How many windows of all heads the first `tokens` tokens complete; None where content decides.

        A cache makes no entries where the number stays the same.
        """
        return None

    def select_BHQN(
        self, hidden_BQE: Tensor, index_BHND: Tensor, seen_BHQN: Tensor, rotate: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Which of the visible entries each query reads; called where entries have an index.

        Args:
            hidden_BQE: the queries' hidden states.
            index_BHND: the index of the entries, rotated.
            seen_BHQN: which entries are visible.
            rotate: rotary embedding of [B, H, Q, D] at the queries' positions.
        """
        return seen_BHQN


class AbstractWindowPool(AbstractCompressor):
    """A weighted mean over each window of a grid; a subclass says only how many gate channels there are.

        a_t = softmax over the window's tokens of (u·h_t + b[slot])      slot = t − window start
        K_j = Σ_t a_t ⊙ k_t        V_j = Σ_t a_t ⊙ v_t

    Keys are pooled before rotary embedding, and the entry is rotated at the window's first real token.

    Args:
        slots: whether the bias of each slot is learned; without it, it stays zero, and a token's content alone says
            what it weighs.

    Attributes:
        tally: where to append each forward's mean weight of each slot, [H, W]; None for nowhere.

    Source: arXiv 2609.36322.
    Differs: the gate reads the layer's normed input h; u is one linear map without bias per KV head and b
        starts at zero, so that training starts from a nearly uniform gate. Neither is spelled out there.
    """

    def __init__(
        self, grids: Sequence[WindowGrid], hidden_size: int, head_dim: int, *, slots: bool = True
    ) -> None:
        super().__init__(grids, hidden_size, head_dim)
        self.tally: list[Tensor] | None = None
        self.channels = self.gate_channels(head_dim)
        self.gate: nn.Linear | None = None
        if self.channels:
            heads, width = len(self.grids), self.grids[0].width
            self.gate = nn.Linear(hidden_size, heads * self.channels, bias=False)
            self.slot_bias = nn.Parameter(torch.zeros(heads, width, self.channels), requires_grad=bool(slots))

    def initial(self) -> dict[str, Tensor]:
        """The bias of every slot is zero."""
        return {} if self.gate is None else {"slot_bias": torch.zeros_like(self.slot_bias)}

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

    def settled(self, tokens: int) -> int | None:
        """The first token of the earliest incomplete window, rounded down to the grid.

        0 where gaps lie between windows, whose tokens stay uncompressed for ever, and for a method whose entries depend
        on where they are read from.
        """
        if self.grids[0].width < self.grids[0].stride or "period" in self.breaks:
            return 0
        first = min(grid.start(grid.closed(tokens)) for grid in self.grids)
        return max(0, first) // self.grids[0].stride * self.grids[0].stride

    def complete(self, tokens: int) -> int | None:
        """The complete windows of each head's grid."""
        return sum(grid.closed(tokens) for grid in self.grids)

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
        start_HN, last_token_HN = window_bounds(self.grids, tokens, key_BHTD.device)
        slot_W = torch.arange(self.grids[0].width, device=key_BHTD.device)
        # A slot row that holds no window would make a softmax over nothing: let it read its padding.
        real_HNW = (start_HN[..., None] + slot_W >= 0) | (last_token_HN == NEVER)[..., None]
        parts = [key_BHTD, state_BHTG] if value_BHTD is key_BHTD else [key_BHTD, state_BHTG, value_BHTD]
        window_BHNWC = cut_windows(torch.cat(parts, dim=-1), self.grids)
        key_BHNWD, state_BHNWG, *value = window_BHNWC.split([part.shape[-1] for part in parts], dim=-1)
        weight_BHNWC = self.weights_BHNWC(state_BHNWG, real_HNW)
        if self.tally is not None and start_HN.shape[1]:
            self.tally.append(_mean_weight_HW(weight_BHNWC, last_token_HN != NEVER))
        key_BHND = (weight_BHNWC * key_BHNWD).sum(3)
        return Entries(
            key_BHND=key_BHND,
            value_BHND=(weight_BHNWC * value[0]).sum(3) if value else key_BHND,
            position_BHN=start_HN.clamp(min=0)[None],
            last_token_BHN=last_token_HN[None],
            visible_from_BHT=first_visible(self.grids, tokens, key_BHTD.device)[None],
        )


def _mean_weight_HW(weight_BHNWC: Tensor, held_HN: Tensor) -> Tensor:
    """Mean of the gate's weights over rows, channels and the windows that each head has."""
    mean_HNW = weight_BHNWC.mean((0, 4))
    held_HN1 = held_HN[..., None].to(mean_HNW.dtype)
    return (mean_HNW * held_HN1).sum(1) / held_HN1.sum(1).clamp(min=1)


def window_bounds(grids: Sequence[WindowGrid], tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """First and last token index of every complete window, [H, N], or [1, N] where all heads share a grid.

    The last token of a missing one is `NEVER`.
    """
    grids = shared(grids)
    counts = [grid.closed(tokens) for grid in grids]
    shift_H = torch.tensor([grid.shift for grid in grids], device=device)
    window_N = torch.arange(max(counts), device=device)
    start_HN = window_N * grids[0].stride - shift_H[:, None]
    last_token_HN = start_HN + grids[0].width - 1
    if len(grids) > 1:
        last_token_HN = last_token_HN.masked_fill(
            window_N >= torch.tensor(counts, device=device)[:, None], NEVER
        )
    return start_HN, last_token_HN


def first_visible(grids: Sequence[WindowGrid], tokens: int, device: torch.device) -> Tensor:
    """The last token of the earliest window that holds each token, [H, T] or [1, T]; `NEVER` between windows."""
    grids = shared(grids)
    width, stride = grids[0].width, grids[0].stride
    shift_H1 = torch.tensor([[grid.shift] for grid in grids], device=device)
    token_T = torch.arange(tokens, device=device)
    window_HT = (-((width - 1 - token_T - shift_H1) // stride)).clamp(min=0)
    start_HT = window_HT * stride - shift_H1
    return (start_HT + width - 1).masked_fill(start_HT > token_T, NEVER)


def shared(grids: Sequence[WindowGrid]) -> Sequence[WindowGrid]:
    """One grid where all heads have the same, else all of them."""
    return grids[:1] if len(set(grids)) == 1 else grids


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
