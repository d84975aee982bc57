"""DeepSeek-V4's pooled series: projections of their own, one softmax per channel, a norm, one head.

Shape suffixes as in `compressors.base`; S stride, P channels of an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import relu
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from ..errors import UsageError
from ..grid import WindowGrid
from .base import AbstractCompressor, Entries, first_visible, window_bounds


class Series(nn.Module):
    """Pools tokens into normed entries, from one series of projections (HCA) or two (CSA).

        entry_w = RMSNorm( Σ_slots softmax(gate + position bias) ⊙ kv )       per channel

    With two series Ca | Cb the slots are Ca of the S tokens before window w, then Cb of its own S tokens; the
    first window has no left half.

    Args:
        hidden_size: model width E.
        channels: of an entry.
        stride: tokens per window.
        series: 1 or 2.
    """

    def __init__(self, hidden_size: int, channels: int, stride: int, series: int) -> None:
        super().__init__()
        self.stride, self.series = stride, series
        self.kv_proj = nn.Linear(hidden_size, series * channels, bias=False)
        self.gate_proj = nn.Linear(hidden_size, series * channels, bias=False)
        self.position_bias = nn.Parameter(torch.zeros(stride, series * channels))
        self.kv_norm = Qwen3RMSNorm(channels, eps=1e-6)

    def initial(self) -> dict[str, Tensor]:
        """As in `AbstractCompressor`."""
        return {"position_bias": torch.zeros_like(self.position_bias)}

    @property
    def width(self) -> int:
        """Channels of a token's state."""
        return 2 * self.kv_proj.out_features

    def state_BTG(self, hidden_BTE: Tensor) -> Tensor:
        """What each token contributes, and with what weight: kv | gate."""
        return torch.cat([self.kv_proj(hidden_BTE), self.gate_proj(hidden_BTE)], dim=-1)

    def entries_BNP(self, state_BTG: Tensor) -> Tensor:
        """The entries of all complete windows of tokens that begin at position 0."""
        windows = state_BTG.shape[1] // self.stride
        state_BNSG = state_BTG[:, : windows * self.stride].unflatten(1, (windows, self.stride))
        kv_BNSC, gate_BNSC = state_BNSG.chunk(2, dim=-1)
        gate_BNSC = gate_BNSC + self.position_bias
        if self.series == 2:
            kv_BNSC, gate_BNSC = _overlap(kv_BNSC, 0.0), _overlap(gate_BNSC, -torch.inf)
        exact = torch.promote_types(gate_BNSC.dtype, torch.float32)
        weight_BNSC = gate_BNSC.softmax(dim=2, dtype=exact).to(kv_BNSC.dtype)
        entries: Tensor = self.kv_norm((weight_BNSC * kv_BNSC).sum(2))
        return entries


def _overlap(x_BNSC: Tensor, fill: float) -> Tensor:
    """Slots of both series side by side: Ca of the window before, `fill` for the first, then Cb."""
    before_BNSP, own_BNSP = x_BNSC.chunk(2, dim=-1)
    none_B1SP = torch.full_like(before_BNSP[:, :1], fill)
    return torch.cat([torch.cat([none_B1SP, before_BNSP[:, :-1]], dim=1), own_BNSP], dim=2)


class Indexer(nn.Module):
    """The lightning indexer: which entries a query reads.

        score(q, w) = Σ_h weight_h(q) · ReLU(query_h(q) · key_w) / √(channels · heads)

    Its choice is a top-k, through which no gradient flows; its weights are frozen here, and a training loss of
    their own has to release them.
    """

    def __init__(
        self, hidden_size: int, stride: int, series: int, heads: int, channels: int, topk: int
    ) -> None:
        super().__init__()
        self.heads, self.topk = heads, topk
        self.keys = Series(hidden_size, channels, stride, series)
        self.q_proj = nn.Linear(hidden_size, heads * channels, bias=False)
        self.weights_proj = nn.Linear(hidden_size, heads, bias=False)
        self.requires_grad_(False)

    def scores_BQN(self, hidden_BQE: Tensor, key_BND: Tensor, rotate: Callable[[Tensor], Tensor]) -> Tensor:
        """Head by head, so that nothing larger than one score per query and entry is held."""
        query_BAQD = rotate(self.q_proj(hidden_BQE).unflatten(-1, (self.heads, -1)).transpose(1, 2))
        scale = (query_BAQD.shape[-1] * self.heads) ** -0.5
        weight_BQA = self.weights_proj(hidden_BQE) * scale
        scores_BQN = query_BAQD.new_zeros(*hidden_BQE.shape[:2], key_BND.shape[1])
        for head in range(self.heads):
            hits_BQN = relu(query_BAQD[:, head] @ key_BND.transpose(1, 2))
            scores_BQN += hits_BQN.mul_(weight_BQA[:, :, head, None])
        return scores_BQN


class AbstractSeries(AbstractCompressor):
    """DeepSeek-V4's compressed branch: one normed head that is key and value, on projections of its own.

    Args:
        grids: of the single KV head.
        hidden_size: model width E.
        head_dim: channels D of an entry.
        topk: entries that a query reads, chosen by an indexer; None for all.
        index_heads: of the indexer.
        index_dim: channels of an indexer head; at least the rotated ones.
    """

    breaks: ClassVar[dict[str, str]] = {"limit": "entries are made from projections of their own"}
    binds = True
    tail_only = True
    series: ClassVar[int]

    def __init__(
        self,
        grids: Sequence[WindowGrid],
        hidden_size: int,
        head_dim: int,
        *,
        topk: int | None = None,
        index_heads: int = 64,
        index_dim: int = 128,
    ) -> None:
        super().__init__(grids, hidden_size, head_dim)
        grid = self.grids[0]
        if len(self.grids) != 1:
            raise UsageError(f"{type(self).__name__} has one KV head; set num_key_value_heads to 1")
        wanted = WindowGrid(self.series * grid.stride, grid.stride, (self.series - 1) * grid.stride)
        if grid != wanted:
            raise UsageError(
                f"{type(self).__name__} at stride {grid.stride} needs the grid {wanted}; got {grid}"
            )
        self.pool = Series(hidden_size, head_dim, grid.stride, self.series)
        self.indexer = None
        if topk is not None:
            for name, value in (("topk", topk), ("index_heads", index_heads), ("index_dim", index_dim)):
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise UsageError(f"{name} is {value!r}; give a whole number of at least 1")
            self.indexer = Indexer(hidden_size, grid.stride, self.series, index_heads, index_dim, topk)

    def state_BHTG(self, hidden_BTE: Tensor) -> Tensor:
        """Series of the entries, and of the indexer's keys."""
        states = [self.pool.state_BTG(hidden_BTE)]
        if self.indexer is not None:
            states.append(self.indexer.keys.state_BTG(hidden_BTE))
        return torch.cat(states, dim=-1)[:, None]

    def entries(self, key_BHTD: Tensor, value_BHTD: Tensor, state_BHTG: Tensor) -> Entries:
        """Pool the states; the tokens' own keys are read only in the sliding window."""
        state_BTG, tokens = state_BHTG[:, 0], state_BHTG.shape[2]
        entry_B1ND = self.pool.entries_BNP(state_BTG[..., : self.pool.width])[:, None]
        _, last_token_1N = window_bounds(self.grids, tokens, state_BTG.device)
        return Entries(
            key_BHND=entry_B1ND,
            value_BHND=entry_B1ND,
            position_BHN=(last_token_1N - self.pool.stride + 1)[None],
            last_token_BHN=last_token_1N[None],
            visible_from_BHT=first_visible(self.grids, tokens, state_BTG.device)[None],
            index_BHND=None
            if self.indexer is None
            else self.indexer.keys.entries_BNP(state_BTG[..., self.pool.width :])[:, None],
        )

    def settled(self, tokens: int) -> int:
        """The first token of the earliest incomplete window."""
        return max(0, self.grids[0].start(self.grids[0].closed(tokens)))

    def complete(self, tokens: int) -> int:
        """The complete windows."""
        return self.grids[0].closed(tokens)

    @torch.no_grad()
    def select_BHQN(
        self, hidden_BQE: Tensor, index_BHND: Tensor, seen_BHQN: Tensor, rotate: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The `topk` visible entries of the highest scores, the oldest among equal ones."""
        assert self.indexer is not None
        if seen_BHQN.shape[-1] <= self.indexer.topk:
            return seen_BHQN
        scores_BQN = self.indexer.scores_BQN(hidden_BQE, index_BHND[:, 0], rotate)
        scores_BHQN = scores_BQN[:, None].masked_fill(~seen_BHQN, -torch.inf)
        # ReLU makes many scores exactly 0. The oldest of equal ones are read: a choice that depended on the
        # number of entries behind them would differ between a prompt read in parts and at once.
        least_BHQ1 = scores_BHQN.topk(self.indexer.topk, dim=-1, sorted=False).values.amin(-1, keepdim=True)
        above_BHQN = scores_BHQN > least_BHQ1
        tied_BHQN = (scores_BHQN == least_BHQ1) & seen_BHQN
        left_BHQ1 = self.indexer.topk - above_BHQN.sum(-1, keepdim=True)
        return above_BHQN | tied_BHQN & (tied_BHQN.cumsum(-1) <= left_BHQ1)
