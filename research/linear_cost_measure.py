"""One measurement of `research.linear_cost`, in a process of its own.

Time comes first, with the allocator as it is. Then the allocator is told to give everything back at once, and the
peak of resident memory over one more run is read from the kernel: peak minus what was resident before the run.
"""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.builders.deepseek import Layer, arguments, ours, theirs, unit_inputs
from torch import Tensor
from transformers import DynamicCache

from phasescope.checkpoints import zoo
from phasescope.grid import WindowGrid
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM, EntryCache

from .linear_cost_bounds import Backbone, cache_bytes, csa_cache_bytes

REFERENCE = "full-1kv"
CSA = Layer(
    kind="csa",
    stride=4,
    hidden=128,
    heads=2,
    channels=64,
    rotated=16,
    window=128,
    topk=512,
    index_heads=2,
    index_channels=32,
)
"""As many heads as DeepSeek-V4's own code can hold at 16K tokens in 24 GB; strides, window and top-k are its own."""
EQUAL = replace(CSA, index_heads=32)
"""With two index heads many scores are exactly 0, and which of them is chosen is not defined."""
WARM, ENOUGH = 1024, 1.0
"""Tokens of the warm-up, and seconds after which a time is not measured once more."""
STEPS, BATCH = 64, 4096
"""Decoded tokens, and tokens of a training step."""

Facts = dict[str, float]
Prepare = Callable[[int], Callable[[], object]]
"""Tokens → a run over inputs of that many tokens, which are made beforehand."""


def config(compressed: bool = True) -> CompressedQwen3Config:
    """W8/S8 at the shape that most models of the zoo have, or the same without compression."""
    found = CompressedQwen3Config.from_pretrained(zoo.folder(REFERENCE))
    found.compression = {"compressor": "scalar_gate", "width": 8, "stride": 8} if compressed else None
    return found


def grid() -> WindowGrid:
    """Of that model."""
    plan = config().plan
    assert plan is not None
    return plan.grids(1, 1)[0][0]


def model(variant: str) -> CompressedQwen3ForCausalLM:
    """`full` or `w8s8`, with random weights."""
    torch.manual_seed(0)
    network: CompressedQwen3ForCausalLM = CompressedQwen3ForCausalLM(config(variant == "w8s8")).eval()
    return network


def token_ids(tokens: int, rows: int = 1) -> Tensor:
    """Random tokens, [B, T]."""
    vocabulary = config().vocab_size
    return torch.randint(vocabulary, (rows, tokens), generator=torch.Generator().manual_seed(tokens))


def prefill(variant: str) -> Prepare:
    """Read the prompt, keep the cache, and make the logits of the next token."""
    network = model(variant)

    def prepare(tokens: int) -> Callable[[], object]:
        ids = token_ids(tokens)
        return torch.inference_mode()(lambda: network(input_ids=ids, use_cache=True, logits_to_keep=1))

    return prepare


def train(variant: str) -> Prepare:
    """Forward and backward of one step, without the optimizer's part."""
    network = model(variant).train()

    def prepare(tokens: int) -> Callable[[], object]:
        ids = token_ids(tokens, max(1, BATCH // tokens))

        def step() -> None:
            network.zero_grad()
            network(input_ids=ids, labels=ids, use_cache=False).loss.backward()

        return step

    return prepare


def csa(variant: str) -> Prepare:
    """One CSA layer of `transformers` or ours; the mask that theirs wants counts as input."""
    their_layer = theirs(CSA, torch.float32)
    layer = their_layer if variant == "transformers" else ours(CSA, their_layer)

    def prepare(tokens: int) -> Callable[[], object]:
        hidden = unit_inputs(CSA, tokens, torch.float32)
        more = arguments(their_layer, hidden) if layer is their_layer else {}
        return torch.inference_mode()(lambda: layer(hidden, **more)[0])

    return prepare


WORK: dict[str, Callable[[str], Prepare]] = {"prefill": prefill, "train": train, "csa": csa}


def measure(kind: str, variant: str, tokens: int, peak: bool) -> Facts:
    """Seconds of a run, and bytes of its peak if wanted; or what another kind says of itself."""
    if kind == "decode":
        return decode(variant, tokens)
    if kind == "cache":
        return cache(variant, tokens)
    if kind == "equal":
        return equal(tokens)
    prepare = WORK[kind](variant)
    prepare(min(WARM, tokens))()
    run = prepare(tokens)
    facts = {"seconds": seconds(run)}
    return {**facts, "bytes": peak_bytes(run)} if peak else facts


def seconds(run: Callable[[], object]) -> float:
    """The fastest of as many runs as fit into a second, at least one."""
    times: list[float] = []
    while sum(times) < ENOUGH:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def peak_bytes(run: Callable[[], object]) -> float:
    """Peak of resident memory during the run, over what was resident before it.

    In a new process: a heap with holes may serve a block from one, and keep its pages when the block is freed.
    """
    gc.collect()
    libc = ctypes.CDLL(None)
    for option, value in (
        (-1, 0),
        (-3, 2**16),
    ):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD: what is freed goes back
        libc.mallopt(option, value)
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    kept = run()
    peak = _status("VmHWM") - before
    del kept
    return peak


def _status(field: str) -> float:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024.0 * int(found[1])


@torch.inference_mode()
def decode(variant: str, tokens: int) -> Facts:
    """Tokens per second of single tokens behind a context, and the bytes that each has to read."""
    network = model(variant)
    cache: Any = EntryCache(network.config) if variant == "w8s8" else DynamicCache(config=network.config)
    network(input_ids=token_ids(tokens), cache=cache, use_cache=True, logits_to_keep=1)
    token = token_ids(1)
    started = time.perf_counter()
    for _ in range(STEPS):
        token = network(input_ids=token, cache=cache, use_cache=True).logits[:, -1:].argmax(-1)
    elapsed = time.perf_counter() - started
    # Of the embedding one row is read, of everything else all.
    weights = sum(x.nbytes for name, x in network.named_parameters() if "embed_tokens" not in name)
    shape = Backbone.of(network.config)
    held = cache_bytes(shape, tokens, grid() if variant == "w8s8" else None)
    return {"tokens_per_second": STEPS / elapsed, "bytes_per_token": weights + held}


@torch.inference_mode()
def cache(variant: str, tokens: int) -> Facts:
    """Bytes that the cache holds, and how many it must."""
    if variant == "w8s8":
        network = model(variant)
        held = EntryCache(network.config)
        network(input_ids=token_ids(tokens), cache=held, use_cache=True, logits_to_keep=1)
        least = cache_bytes(Backbone.of(network.config), tokens, grid())
    else:
        layer = ours(CSA, theirs(CSA, torch.float32))
        held = EntryCache(layer.config)
        layer(unit_inputs(CSA, tokens, torch.float32), cache=held)
        least = csa_cache_bytes(CSA, tokens)
    layers: list[Any] = held.layers
    return {"bytes": float(sum(layer.nbytes() for layer in layers)), "least": float(least)}


@torch.inference_mode()
def equal(tokens: int) -> Facts:
    """Relative errors of entries and output against `transformers`, and the share of equal choices, in float64.

    A choice between two scores that differ by less than float32 resolves is not defined (their indexer computes in
    float32), so outputs are compared where the choices agree.
    """
    layer: Any = theirs(EQUAL)
    mine, hidden = ours(EQUAL, layer), unit_inputs(EQUAL, tokens)
    their_seen: list[Any] = []
    layer.compressor.register_forward_hook(lambda module, given, out: their_seen.extend(out))
    their_out = layer(hidden, **arguments(layer, hidden))[0]
    their_entries, bias = their_seen
    choices: list[Tensor] = []
    select = mine.compressor.select_BHQN

    def spy(*given: Any) -> Tensor:
        choices.append(select(*given)[0, 0])
        return choices[-1]

    mine.compressor.select_BHQN = lambda *given: spy(*given)[None, None]  # type: ignore[method-assign]
    held: Any = EntryCache(mine.config)
    our_out = mine(hidden, cache=held)[0]
    our_entries = held.layers[0].keys
    start, same = 0, []
    for choice in choices:
        end = start + len(choice)
        expected = bias[0, 0, start:end] == 0
        beyond = expected[:, choice.shape[1] :].any(1)
        same.append((expected[:, : choice.shape[1]] == choice).all(1) & ~beyond)
        start = end
    same_Q = torch.cat(same)
    return {
        "entries": _error(our_entries, their_entries[..., EQUAL.order]),
        "output": _error(our_out[:, same_Q], their_out[:, same_Q]),
        "output_of_all": _error(our_out, their_out),
        "equal_choices": float(same_Q.double().mean()),
        "chosen_from": float(our_entries.shape[2]),
    }


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
