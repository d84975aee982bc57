"""Dynamic windows: the content of the tokens says where one window ends and the next begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.nn.functional import pad

from ..errors import UsageError
from ..grid import NEVER, WindowGrid
from .base import Entries
from .scalar_gate import ScalarGate


class Dynamic(ScalarGate):
    """Windows that end where a hash of a token's content says so, pooled with a scalar gate.

        boundary_t = frac(Σ_e r_e h_te / ‖h_t‖) < p      r_e = ±1, drawn once from `seed`
        window     = the tokens up to the first boundary that leaves it `minimum` tokens, at most W

    The windows do not overlap, all heads of a layer share them, and the last one makes no entry before it is
    complete. p is such that their mean length is the stride S (see `boundary_chance`): as far as the score's
    distribution is smooth over a unit, its fraction is uniform, wherever its mean lies; standard normal
    scores, which isotropic h_t give, are off by 5e-9. At S = W no content ends a window, and the method is
    `ScalarGate`.

    Args:
        grids: W is the longest window, S the mean length; without shift, since there is no grid to move.
        hidden_size: model width E.
        head_dim: channels D of a head.
        minimum: tokens of the shortest window, at most S.
        seed: of r, which is saved with the model.

    Raises:
        UsageError: if `minimum` <= S <= W does not hold, a grid is shifted, or the seed is negative.

    Source: content-defined chunking with minimum and maximum, as in data deduplication (LBFS, Muthitacharoen
        et al. 2001; FastCDC, Xia et al. 2016): boundaries find back to the same content after an insertion.
    Differs: the hash reads one token's hidden state in place of the last bytes, so that a token's state depends
        on nothing else; boundaries are drawn and not learned, as H-Net's (arXiv 2507.07955) are. A threshold
        on the score itself would keep more boundaries when the context changes a little, but misses the mean
        length by as much as five times, because trained hidden states have a mean of their own.
    """

    breaks: ClassVar[dict[str, str]] = {"period": "boundaries follow content"}
    signs: Tensor

    def __init__(
        self, grids: Sequence[WindowGrid], hidden_size: int, head_dim: int, *, minimum: int = 1, seed: int = 0
    ) -> None:
        super().__init__(grids, hidden_size, head_dim)
        grid = self.grids[0]
        for name, value, least in (("minimum", minimum, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"dynamic's {name} is {value!r}; give a whole number of at least {least}")
        if not minimum <= grid.stride <= grid.width:
            raise UsageError(
                f"dynamic windows of {minimum} to {grid.width} tokens cannot have {grid.stride} on average; "
                "give minimum <= stride <= width"
            )
        if any(grid.shift for grid in self.grids):
            raise UsageError(f"dynamic windows have no grid to shift; got {list(map(str, self.grids))}")
        self.minimum = minimum
        self.chance = boundary_chance(minimum, grid.stride, grid.width)
        self.seed = seed
        self.register_buffer("signs", torch.empty(hidden_size))
        self.signs.copy_(self.initial()["signs"])

    def initial(self) -> dict[str, Tensor]:
        """A gate without slot bias, and the signs of the seed."""
        rng = torch.Generator("cpu").manual_seed(self.seed)
        # Models are also built on the meta device, where nothing can be drawn.
        signs_E = torch.randint(2, self.signs.shape, generator=rng, device="cpu") * 2 - 1
        return super().initial() | {"signs": signs_E}

    def state_BHTG(self, hidden_BTE: Tensor) -> Tensor:
        """The gate's logit of each token, and 1 where it may end a window."""
        logit_BHT1 = super().state_BHTG(hidden_BTE)
        with torch.no_grad():
            exact_BTE = hidden_BTE.to(torch.promote_types(hidden_BTE.dtype, torch.float32))
            norm_BT = exact_BTE.norm(dim=-1).clamp(min=torch.finfo(exact_BTE.dtype).tiny)
            score_BT = (exact_BTE * self.signs).sum(-1) / norm_BT
            ends_BT = score_BT - score_BT.floor() < self.chance
        ends_BHT1 = ends_BT.to(logit_BHT1.dtype)[:, None, :, None].expand_as(logit_BHT1)
        return torch.cat([logit_BHT1, ends_BHT1], dim=-1)

    def settled(self, tokens: int) -> None:
        """The token after the last complete window, of each row for itself."""

    def complete(self, tokens: int) -> None:
        """Content decides."""

    def entries(self, key_BHTD: Tensor, value_BHTD: Tensor, state_BHTG: Tensor) -> Entries:
        """Pool every complete window; see the class for the formula."""
        batch, heads, tokens, _ = key_BHTD.shape
        width, device = self.grids[0].width, key_BHTD.device
        start_BN, last_token_BN, visible_from_BT = dynamic_bounds(
            state_BHTG[:, 0, :, 1] > 0, self.minimum, width
        )
        token_BNW = start_BN[..., None] + torch.arange(width, device=device)
        real_BNW = token_BNW <= last_token_BN[..., None]
        place_BHK = token_BNW.clamp(max=tokens - 1).flatten(1)[:, None].expand(-1, heads, -1)
        state_BHNWG = state_BHTG[..., 0].gather(2, place_BHK).unflatten(2, (-1, width))[..., None]
        weight_BHNW = self.weights_BHNWC(state_BHNWG, real_BNW[:, None])[..., 0]
        # Payloads are not cut into windows: weighted where they stand, and added up, they are read once.
        token_BT = torch.arange(tokens, device=device).repeat(batch, 1)
        entry_BT = torch.searchsorted(last_token_BN, token_BT)  # one more entry takes what is in no window
        slot_BT = (token_BT - pad(start_BN, (0, 1)).gather(1, entry_BT)).clamp(0, width - 1)
        place_BHT = (entry_BT * width + slot_BT)[:, None].expand(-1, heads, -1)
        weight_BHT = pad(weight_BHNW, (0, 0, 0, 1)).flatten(2).gather(2, place_BHT)
        key_BHND = added_up(weight_BHT, key_BHTD, entry_BT, start_BN.shape[1])
        bound = value_BHTD is key_BHTD
        return Entries(
            key_BHND=key_BHND,
            value_BHND=key_BHND if bound else added_up(weight_BHT, value_BHTD, entry_BT, start_BN.shape[1]),
            position_BHN=start_BN[:, None],
            last_token_BHN=last_token_BN[:, None],
            visible_from_BHT=visible_from_BT[:, None],
        )


def added_up(weight_BHT: Tensor, x_BHTD: Tensor, entry_BT: Tensor, entries: int) -> Tensor:
    """The weighted sum of each entry's tokens, [B, H, N, D]; tokens of entry N are left out."""
    batch, heads, _, channels = x_BHTD.shape
    exact = torch.promote_types(x_BHTD.dtype, torch.float32)  # bf16 loses bits token by token
    x_BTHD = (weight_BHT.to(exact)[..., None] * x_BHTD).transpose(1, 2)
    row_B1 = torch.arange(batch, device=entry_BT.device)[:, None]
    sums = x_BTHD.new_zeros(batch * (entries + 1), heads, channels)
    sums = sums.index_add(0, (row_B1 * (entries + 1) + entry_BT).flatten(), x_BTHD.flatten(0, 1))
    return sums.unflatten(0, (batch, entries + 1))[:, :entries].transpose(1, 2).to(x_BHTD.dtype)


def boundary_chance(minimum: int, mean: int, maximum: int) -> float:
    """With what probability p a token must be a boundary for windows of this mean length.

    A window is as long as a geometric variable after `minimum` − 1 tokens, cut at `maximum`. It is longer
    than `minimum` + i − 1 tokens iff i tokens in a row are no boundaries, so that with q = 1 − p

        mean = minimum + Σ_{i=1}^{maximum − minimum} q^i = minimum + q (1 − q^(maximum − minimum)) / (1 − q)

    which grows with q from `minimum` to `maximum`, and is solved for q.
    """
    powers = range(1, maximum - minimum + 1)
    return 1 - float(brentq(lambda q: minimum + sum(q**i for i in powers) - mean, 0, 1))


def dynamic_bounds(ends_BT: Tensor, minimum: int, maximum: int) -> tuple[Tensor, Tensor, Tensor]:
    """The complete windows of each row: first and last token [B, N], and each token's window's last, [B, T].

    The last token is `NEVER` for windows that a row has fewer than others, and for the one that is not complete.

    From each token on which a window could start, the start of the next one is known at once; the jumps are
    then doubled, so that log2(T) steps find all windows, without a loop over them.
    """
    tokens = ends_BT.shape[1]
    place_T = torch.arange(tokens + 1, device=ends_BT.device)
    # Place T stands for the end: an incomplete window ends and jumps there, and so does the end itself.
    boundary_BT = torch.where(ends_BT, place_T[:-1], tokens).flip(1).cummin(1).values.flip(1)
    boundary_BT = pad(boundary_BT, (0, minimum), value=tokens)[:, minimum - 1 :]
    last_token_BT = torch.minimum(boundary_BT, place_T + maximum - 1)
    last_token_BT = last_token_BT.clamp(max=tokens)
    jump_BT = (last_token_BT + 1).clamp(max=tokens)
    starts_BT = torch.zeros_like(jump_BT, dtype=torch.bool)
    starts_BT[:, 0] = True
    for _ in range(tokens.bit_length()):
        starts_BT = starts_BT.scatter(1, torch.where(starts_BT, jump_BT, tokens), True)
        jump_BT = jump_BT.gather(1, jump_BT)
    complete_BT = starts_BT & (last_token_BT < tokens)
    most = int(complete_BT.sum(1).max())
    start_BN = torch.where(complete_BT, place_T, tokens).sort(1).values[:, :most]
    last_token_BT = last_token_BT.masked_fill(last_token_BT == tokens, NEVER)
    latest_BT = torch.where(starts_BT, place_T, 0).cummax(1).values[:, :tokens]
    return start_BN, last_token_BT.gather(1, start_BN), last_token_BT.gather(1, latest_BT)
