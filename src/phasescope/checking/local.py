"""A causal language model of `transformers` as a subject: every operation of its cache, on this machine."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from ..backends.transformers.forward import BREAKS, forward
from ..errors import UsageError, first_line
from .engine import Continuation, EngineUnderTest, Ids, Logprobs, NotOfferedError
from .ties import EqualScores, rounding_errors

NOISE = 2  # rounding errors are drawn with this many units in the last place as their standard deviation


@dataclass(frozen=True)
class State:
    """An engine's state after some tokens.

    Attributes:
        cache: what `transformers` keeps; forwards change it in place.
        ids: the tokens it stands for.
        row: log-probabilities of the next token.
    """

    cache: Any
    ids: Ids
    row: Logprobs | None = None


def _failing(read: Callable[..., Continuation]) -> Callable[..., Continuation]:
    """A way of reading whose forward breaks is a reading that failed, not the end of the check."""

    @wraps(read)
    def guarded(*args: Any, **kwargs: Any) -> Continuation:
        try:
            return read(*args, **kwargs)
        except BREAKS as error:
            return Continuation((), (), failed=f"{type(error).__name__}: {first_line(error)}")

    return guarded


class LocalEngine(EngineUnderTest):
    """A model of `transformers` and its cache, through the operations that its users and `generate` call.

    The prompt in one piece is one forward on a fresh cache. Everything else is composed of `read`, `save`,
    `restore`, `crop` and `reorder`, so that a planted fault is one of these overridden.

    Args:
        model: any causal language model with a cache.
        name: what a report calls it.
        facts: further facts for the record.
    """

    def __init__(self, model: Any, *, name: str, facts: dict[str, Any] | None = None) -> None:
        self.model = model.eval()
        self.name = name
        config = model.config.get_text_config()
        special = {config.bos_token_id, config.pad_token_id, *_as_list(config.eos_token_id)}
        self.ids = tuple(token for token in range(config.vocab_size) if token not in special)
        # Norms, softmax and rotary embeddings compute in float32, whatever the model's own type.
        self.eps = max(torch.finfo(model.dtype).eps, torch.finfo(torch.float32).eps)
        self.longest = int(getattr(config, "max_position_embeddings", None) or 2**16)
        self._pad = config.pad_token_id if config.pad_token_id is not None else self.ids[0]
        self._facts = facts or {}
        self._mode: EqualScores | None = None
        self.equal_scores = 0

    def facts(self) -> dict[str, Any]:
        """What was checked, and on what its last digits depend."""
        return {
            "subject": self.name,
            "access": "local",
            "class": type(self.model).__name__,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.model.device.type,
            "threads": torch.get_num_threads(),
            **self._facts,
        }

    # The engine's operations.

    def read(self, ids: Ids, state: State | None = None) -> State:
        """One forward over a piece of a prompt, from a state or from nothing; the state is used up."""
        state = state or State(None, ())
        out = self._forward(self._tensor([ids]), state.cache, start=len(state.ids), keep=1)
        return State(out.cache, state.ids + ids, _rows(out.logits[:, -1])[0])

    def save(self, state: State) -> tuple[State, bytes]:
        """The state as bytes; with it what is no tensor."""
        return state, safetensors.torch.save(_named_tensors(state.cache))

    def restore(self, saved: tuple[State, bytes], shape: State) -> State:
        """The state that was saved; `shape` is a copy of the object that held it, made when it was saved."""
        loaded = safetensors.torch.load(saved[1])
        memo = {id(tensor): loaded[name].to(tensor.device) for name, tensor in _tensors(shape.cache).items()}
        return replace(shape, cache=copy.deepcopy(shape.cache, memo))

    def share(self, prompt: Ids, cut: int, other: Ids) -> State:
        """Read another prompt that begins with the same tokens, and return what is kept of these."""
        state = self.read(prompt[:cut])
        kept = replace(state, cache=copy.deepcopy(state.cache))
        self.read(other, state)
        return kept

    def crop(self, state: State, tokens: int) -> State:
        """Take the last tokens back."""
        state.cache.crop(-tokens)
        return State(state.cache, state.ids[:-tokens])

    def reorder(self, cache: Any, rows: Sequence[int]) -> None:
        """Row i becomes what row rows[i] was."""
        cache.reorder_cache(self._tensor(rows))

    # Ways of reading a prompt.

    def whole(self, prompt: Ids, new: int) -> Continuation:
        """One forward on a fresh cache; here an error is the model's own and is not caught."""
        with self._asking():
            return self._go_on(self.read(prompt), new)

    def inside(self, prompt: Ids, start: int) -> list[Continuation]:
        """One forward with the logits of many tokens."""
        with self._asking():
            ids_BT = self._tensor([prompt])
            logits_TV = self._forward(ids_BT, None, start=0, keep=len(prompt) - start).logits[0]
            return [Continuation((row,), (int(row.argmax()),)) for row in _rows(logits_TV)]

    @_failing
    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        """One forward per piece, on one cache."""
        with self._asking():
            ends = [*cuts, len(prompt)]
            state = self.read(prompt[: ends[0]])
            for start, end in pairwise(ends):
                state = self.read(prompt[start:end], state)
            return self._go_on(state, new)

    def in_batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        """Left-padded, with attention mask and positions as `generate` makes them."""
        with self._asking():
            try:
                return self._batch(prompts, new)
            except BREAKS as error:
                return [Continuation((), (), failed=f"{type(error).__name__}: {first_line(error)}")] * len(
                    prompts
                )

    @_failing
    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """A copy of the cache after the shared tokens, as `transformers` advises for shared prefixes."""
        with self._asking():
            kept = self.share(prompt, cut, other)
            return self._go_on(self.read(prompt[len(kept.ids) :], kept), new)

    @_failing
    def restored(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Through bytes and back, while the original reads other tokens."""
        with self._asking():
            state = self.read(prompt[:cut])
            shape = replace(state, cache=copy.deepcopy(state.cache))
            saved = self.save(state)
            self.read(other, state)
            return self._go_on(self.read(prompt[cut:], self.restore(saved, shape)), new)

    def cropped(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """A draft behind the cut, rejected as assisted decoding does it."""
        with self._asking():
            state = self.read(prompt[:cut])
            cache = state.cache
            if not hasattr(cache, "crop"):
                raise NotOfferedError(f"{type(cache).__name__} cannot be cropped", absent=True)
            if not getattr(cache, "is_croppable", True):
                raise NotOfferedError(f"{type(cache).__name__} says that it cannot be cropped", absent=True)
            if hasattr(cache, "activate_past_recording"):
                cache.activate_past_recording()
            return self._regrown(state, prompt[cut:], other, new)

    @_failing
    def reordered(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        """Three beams, of which the last one reads the prompt and is then moved to the front."""
        with self._asking():
            state = self.read(prompt[:cut])
            middle = cut + max(1, (len(prompt) - cut) // 2)
            mine = prompt[cut:middle]
            wrong = tuple(other[0] if token != other[0] else prompt[0] for token in mine)
            self.reorder(state.cache, [0, 0, 0])
            out = self._forward(self._tensor([wrong, wrong, mine]), state.cache, start=cut, keep=1)
            self.reorder(out.cache, [2, 1, 0])
            rest = prompt[middle:]
            ids_BT = self._tensor([rest, rest, wrong[:1] * len(rest)])
            out = self._forward(ids_BT, out.cache, start=middle, keep=1)
            self.reorder(out.cache, [0])
            return self._go_on(State(out.cache, prompt, _rows(out.logits[:, -1])[0]), new)

    def speculative(self, prompt: Ids, new: int) -> Continuation:
        """`generate` with prompt lookup, with the logits that each token was chosen by."""
        with self._asking(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                out = self.model.generate(
                    self._tensor([prompt]),
                    attention_mask=torch.ones(1, len(prompt), dtype=torch.long, device=self.model.device),
                    do_sample=False,
                    max_new_tokens=new,
                    min_new_tokens=new,
                    prompt_lookup_num_tokens=4,
                    output_logits=True,
                    return_dict_in_generate=True,
                    pad_token_id=self._pad,
                )
            except (ValueError, NotImplementedError) as error:
                raise NotOfferedError(f"generate refuses it: {first_line(error)}", absent=True) from None
            except BREAKS as error:
                return Continuation((), (), failed=f"{type(error).__name__}: {first_line(error)}")
        rows = tuple(_rows(logits)[0] for logits in out.logits[:new])
        return Continuation(rows, tuple(out.sequences[0, len(prompt) :].tolist()))

    def noisy(self, prompt: Ids, new: int, rng: np.random.Generator) -> Continuation:
        """One forward whose layers are off by a rounding error."""
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        with rounding_errors(self.model, generator, NOISE * self.eps):
            return self.whole(prompt, new)

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Equal scores are chosen by age in every forward."""
        self._mode = EqualScores()
        try:
            yield
        finally:
            self._mode = None

    # How it is done.

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with torch.inference_mode():
            if self._mode is None:
                yield
                return
            before = self._mode.seen
            with self._mode:
                yield
            self.equal_scores += self._mode.seen - before

    def _forward(self, ids_BT: Tensor, cache: Any, *, start: int, keep: int, **inputs: Any) -> Any:
        return forward(self.model, ids_BT, cache, start=start, keep=keep, **inputs)

    def _go_on(self, state: State, new: int) -> Continuation:
        """The greedy continuation, token by token."""
        rows, tokens = [], []
        while True:
            assert state.row is not None
            rows.append(state.row)
            tokens.append(int(np.asarray(state.row).argmax()))
            if len(rows) == new:
                return Continuation(tuple(rows), tuple(tokens))
            state = self.read((tokens[-1],), state)

    @_failing
    def _regrown(self, state: State, rest: Ids, draft: Ids, new: int) -> Continuation:
        state = self.read(draft, state)
        try:
            state = self.crop(state, len(draft))
        except (UsageError, ValueError, NotImplementedError) as error:
            raise NotOfferedError(
                f"its cache refuses to be cropped: {first_line(error)}", absent=True
            ) from None
        return self._go_on(self.read(rest, state), new)

    def _batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        width = max(map(len, prompts))
        ids_BT = self._tensor([(self._pad,) * (width - len(prompt)) + prompt for prompt in prompts])
        mask_BT = self._tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        rows: list[list[Logprobs]] = [[] for _ in prompts]
        tokens: list[list[int]] = [[] for _ in prompts]
        cache, piece_BT = None, ids_BT
        for step in range(new):
            position_BT = (mask_BT.cumsum(-1) - 1).masked_fill(mask_BT == 0, 0)[:, -piece_BT.shape[1] :]
            out = self._forward(
                piece_BT, cache, start=0, keep=1, attention_mask=mask_BT, position_ids=position_BT
            )
            cache = out.cache
            for index, row in enumerate(_rows(out.logits[:, -1])):
                rows[index].append(row)
                tokens[index].append(int(row.argmax()))
            piece_BT = self._tensor([[row[step]] for row in tokens])
            mask_BT = torch.cat([mask_BT, torch.ones_like(piece_BT)], dim=1)
        return [Continuation(tuple(r), tuple(t)) for r, t in zip(rows, tokens, strict=True)]

    def _tensor(self, ids: Any) -> Tensor:
        return torch.as_tensor(ids, dtype=torch.long, device=self.model.device)


def require_dtype(name: str) -> None:
    """Refuse what is no number format of torch.

    Raises:
        UsageError: naming usual ones.
    """
    found = getattr(torch, name, None)
    if name != "auto" and not (isinstance(found, torch.dtype) and found.is_floating_point):
        raise UsageError(f"unknown dtype {name!r}; give auto, float32, float64, bfloat16 or float16")


def _rows(logits_TV: Tensor) -> list[Any]:
    """Log-probabilities, computed in float64 and kept in float32, one array per row."""
    rows = [torch.log_softmax(row.detach().double(), dim=-1).float().cpu() for row in logits_TV]
    return [row.numpy() for row in rows]


def _tensors(thing: Any) -> dict[str, Tensor]:
    """Every tensor that an object holds, by the path to it; one that is held twice by its first path."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()

    def visit(value: Any, path: str) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, Tensor):
            found[path] = value
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(item, f"{path}.{key}")
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                visit(item, f"{path}[{index}]")
        elif hasattr(value, "__dict__"):
            visit(vars(value), path)

    visit(thing, "cache")
    return found


def _named_tensors(thing: Any) -> dict[str, Tensor]:
    """The same as copies that a file can hold."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in _tensors(thing).items()}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
