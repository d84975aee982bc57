"""Engines whose fault is known, because we put it there: the measure of the check."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..checking.engine import Ids
from ..checking.local import LocalEngine, State
from ..errors import UsageError


class LosesTail(LocalEngine):
    """A chunk's tokens behind its last whole window are lost once a further chunk is read.

    Differs: engines lose a compressor's buffer; here the chunk is read again without its tail, which does
        the same to every architecture.
    """

    stride = 4

    def read(self, ids: Ids, state: State | None = None) -> State:
        """Decoding, a piece of one token, is spared."""
        if state is None or len(ids) == 1 or not len(state.ids) % self.stride:
            return super().read(ids, state)
        whole = state.ids[: len(state.ids) // self.stride * self.stride]
        read = super().read(ids, super().read(whole) if whole else None)
        return State(read.cache, state.ids + ids, read.row)


class ForgetsOverlap(LocalEngine):
    """Windows that overlap lose, once a further chunk is read, the half that was read before it."""

    def read(self, ids: Ids, state: State | None = None) -> State:
        """Decoding, a piece of one token, is spared.

        Raises:
            UsageError: if the model's windows do not overlap.
        """
        if state is not None and len(ids) > 1:
            layers = [layer for layer in state.cache.layers if _forget_overlap(layer)]
            if not layers:
                raise UsageError(f"{self.name} has no overlapping windows; plant another fault")
        return super().read(ids, state)


class RoundsHits(LocalEngine):
    """A prefix cache takes a hit for as long as its last block is, with the other prompt's tokens in it."""

    block = 16

    def share(self, prompt: Ids, cut: int, other: Ids) -> State:
        """At least one token of the prompt itself is still read."""
        hit = min(-(-cut // self.block) * self.block, cut + len(other), len(prompt) - 1)
        state = self.read((prompt[:cut] + other)[:hit])
        return State(state.cache, prompt[:hit], state.row)


class ShiftsOnRestore(LocalEngine):
    """A saved state holds its last token twice, so that all later positions are off by one."""

    def restore(self, saved: tuple[State, bytes], shape: State) -> State:
        """What is restored has one token more than was saved."""
        ids = shape.ids
        return State(self.read(ids + ids[-1:]).cache, ids)


class WrongAtLength(LocalEngine):
    """A prompt whose length leaves one residue is read with its first token taken for another.

    Attributes:
        residue, period: of the length.
    """

    residue, period = 37, 128

    def _forward(self, ids_BT: Tensor, cache: Any, *, start: int, keep: int, **inputs: Any) -> Any:
        if cache is None and len(ids_BT) == 1 and ids_BT.shape[1] % self.period == self.residue:
            ids_BT = ids_BT.clone()
            ids_BT[0, 0] = self.ids[(self.ids.index(int(ids_BT[0, 0])) + 1) % len(self.ids)]
        return super()._forward(ids_BT, cache, start=start, keep=keep, **inputs)


FAULTS: dict[str, type[LocalEngine]] = {
    "tail": LosesTail,
    "overlap": ForgetsOverlap,
    "hits": RoundsHits,
    "shift": ShiftsOnRestore,
    "length": WrongAtLength,
}
"""Each planted fault by name."""


def lose_lane(model: nn.Module, *, stride: int, residue: int) -> Callable[[], None]:
    """Make a dense model's prefill lose one lane of its tiles; it works on the model itself, for every caller.

    Of a piece of several tokens, the cached keys and values at the positions ≡ residue mod stride are
    replaced by zeros once the piece is read, and its last token is then read alone. Decoding is spared.

    Args:
        model: a model of `transformers` whose cache keeps raw keys and values.
        stride: tokens per tile.
        residue: the lane.

    Returns:
        what takes the fault away again.
    """
    plain = model.forward

    def forward(input_ids: Tensor, cache: Any = None, **inputs: Any) -> Any:
        logits_to_keep = inputs.get("logits_to_keep", 0)
        if input_ids.shape[1] == 1 or logits_to_keep != 1 or not inputs.get("use_cache"):
            return plain(input_ids=input_ids, cache=cache, **inputs)
        before, last = _halves(inputs)
        first = plain(input_ids=input_ids[:, :-1], cache=cache, **before)
        for layer in first.cache.layers:
            new = input_ids.shape[1] - 1
            start = layer.keys.shape[2] - new
            lane = [place for place in range(start, start + new) if place % stride == residue]
            layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
            layer.keys[:, :, lane] = layer.values[:, :, lane] = 0
        return plain(input_ids=input_ids[:, -1:], cache=first.cache, **last)

    model.forward = forward  # on this one object

    def repair() -> None:
        model.forward = plain

    return repair


def _halves(inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A forward's further arguments for all tokens but the last, and for the last."""
    before, last = dict(inputs), dict(inputs)
    if inputs.get("attention_mask") is not None:
        before["attention_mask"] = inputs["attention_mask"][:, :-1]
    if inputs.get("position_ids") is not None:
        before["position_ids"] = inputs["position_ids"][:, :-1]
        last["position_ids"] = inputs["position_ids"][:, -1:]
    return before, last


def _forget_overlap(layer: Any) -> bool:
    """Drop the earlier half of the next window from one layer of a cache; False where there is none."""
    if hasattr(layer, "overlap_kv"):  # DeepSeek-V4's CSA
        for state in (layer.overlap_kv, layer.overlap_gate):
            state.update(dict.fromkeys(state))
        return True
    compressor = getattr(layer, "_compressor", lambda: None)() if hasattr(layer, "_compressor") else None
    if compressor is None or compressor.grids[0].width <= compressor.grids[0].stride:
        return False
    stride = compressor.grids[0].stride
    half = slice(max(0, layer.resume - layer.start), layer.seen // stride * stride - layer.start)
    for name in ("raw_key", "raw_value"):
        tensor = copy.copy(getattr(layer, name))
        if tensor is not None:
            tensor = tensor.clone()
            tensor[:, :, half] = 0
            setattr(layer, name, tensor)
    return True
