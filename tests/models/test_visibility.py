"""When an entry is first read: by the token that closes its window, or by the next one."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from phasescope.checkpoints import zoo
from phasescope.grid import NEVER
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM, Compression
from tests.models.test_cache import PLANS, close, model

V4: list[dict[str, Any]] = [
    {"compressor": "csa", "width": 8, "stride": 4, "shift": 4, "tail": 8, "binding": True, "sink": True},
    {"compressor": "hca", "width": 6, "stride": 6, "tail": 9, "binding": True, "rotary": 0.5},
]
each_visibility = pytest.mark.parametrize("visibility", ["closing", "next"])
each_plan = pytest.mark.parametrize("plan", [*PLANS, *V4], ids=str)


def subject(plan: dict[str, Any], visibility: str) -> CompressedQwen3ForCausalLM:
    return model({**plan, "visibility": visibility}, heads=1 if plan in V4 else 2)


def windows_of(layer: Any, last_token_N: list[int], position_N: list[int], head: int) -> list[range]:
    """The real tokens of each entry: of the grid, or of what a dynamic window begins and ends with."""
    if layer.plan.compressor == "dynamic":
        return [range(first, last + 1) for first, last in zip(position_N, last_token_N, strict=True)]
    grid = layer.compressor.grids[head]
    assert last_token_N == [grid.closes(j) for j in range(len(last_token_N))]
    return [range(max(0, grid.start(j)), grid.closes(j) + 1) for j in range(len(last_token_N))]


def written_out(layer: Any, hidden_1TE: Tensor, delay: int) -> Tensor:
    """Query by query and head by head: one softmax over the visible entries and the raw tokens, [T, E]."""
    tokens, plan = hidden_1TE.shape[1], layer.plan
    shape = (1, tokens, -1, layer.head_dim)
    place = torch.arange(tokens)[None, None]
    query = layer.rotate(layer.q_norm(layer.q_proj(hidden_1TE).view(shape)).transpose(1, 2), place)[0]
    key = layer.k_norm(layer.k_proj(hidden_1TE).view(shape)).transpose(1, 2)
    value = key if plan.binding else layer.v_proj(hidden_1TE).view(shape).transpose(1, 2)
    entries = layer.compressor.entries(key, value, layer.compressor.state_BHTG(hidden_1TE))
    entry_key, raw_key = layer.rotate(entries.key_BHND, entries.position_BHN)[0], layer.rotate(key, place)[0]
    entry_value, raw_value = (entry_key, raw_key) if plan.binding else (entries.value_BHND[0], value[0])
    heads, out = key.shape[1], []
    for q in range(tokens):
        read = []
        for a in range(len(query)):
            h = a * heads // len(query)
            last, first = (
                x[0].expand(heads, -1)[h].tolist() for x in (entries.last_token_BHN, entries.position_BHN)
            )
            last = [end for end in last if end != NEVER]
            windows = windows_of(layer, last, first[: len(last)], h)
            seen = [j for j, end in enumerate(last) if end + delay <= q]
            held = {t for j in seen for t in windows[j]}
            raw = [t for t in range(q + 1) if t not in held or t > q - plan.tail]
            keys = torch.cat([entry_key[h, seen], raw_key[h, raw]])
            values = torch.cat([entry_value[h, seen], raw_value[h, raw]])
            scores = keys @ query[a, q] * layer.scaling
            if layer.sinks is not None:
                scores = torch.cat([scores, layer.sinks[a : a + 1]])
            read.append(scores.softmax(0)[: len(keys)] @ values)
        out_1A1D = torch.stack(read)[None, :, None]
        if plan.binding:
            out_1A1D = layer.rotate(out_1A1D, -place[:, :, q : q + 1])
        out.append(out_1A1D.flatten())
    result: Tensor = layer.o_proj(torch.stack(out))
    return result


@each_visibility
@each_plan
@torch.no_grad()
def test_attention_equals_one_softmax_over_entries_and_raw_tokens_written_out(
    plan: dict[str, Any], visibility: str
) -> None:
    """Every compressor, on plain, shifted, overlapping and gapped grids, against the definition."""
    layer: Any = subject(plan, visibility).model.layers[1].self_attn
    hidden = torch.randn(1, 27, 32, dtype=torch.float64)
    close(layer(hidden)[0][0], written_out(layer, hidden, int(visibility == "next")))


@pytest.mark.parametrize("parts", [[1] * 45, [24, 1, 15, 5], [7, 38]], ids=str)
@each_visibility
@each_plan
@torch.inference_mode()
def test_cached_and_in_parts_it_reads_as_at_once(
    plan: dict[str, Any], visibility: str, parts: list[int]
) -> None:
    """One pass, token by token, and chunks that end inside and on a window's last token."""
    reader, ids = subject(plan, visibility), torch.randint(50, (2, 45))
    cache, read = None, []
    for part in ids.split(parts, dim=1):
        out = reader(input_ids=part, cache=cache, use_cache=True)
        cache = out.cache
        read.append(out.logits)
    close(torch.cat(read, dim=1), reader(input_ids=ids, use_cache=False).logits)


@torch.no_grad()
def test_the_token_that_closes_a_window_reads_its_neighbours_raw_with_next() -> None:
    """At the last slot of W8/S8 `closing` reads one entry, `next` its eight tokens; one token later both one entry."""
    reads = {}
    for visibility in ("closing", "next"):
        layer: Any = subject(PLANS[0], visibility).model.layers[0].self_attn
        block, seen = layer._block, []
        layer._block = lambda *args, block=block, seen=seen: (seen.append(args[3]), block(*args))[1]
        layer(torch.randn(1, 17, 32, dtype=torch.float64))
        reads[visibility] = seen[0]
    counts = {
        name: [tuple(int(x[0, 0, q].sum()) for x in found.visible(0, 17, 0)) for q in (6, 7, 8, 15, 16)]
        for name, found in reads.items()
    }
    assert counts["closing"] == [(0, 7), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert counts["next"] == [(0, 7), (0, 8), (1, 1), (1, 8), (2, 1)]


def test_new_models_read_late_but_for_deepseek_v4() -> None:
    """What is built here says so; what a file leaves out was written by version 0.1."""
    for plan in PLANS:
        assert Compression.checked(**plan).visibility == "next"
        assert Compression.model_validate_json(json.dumps(plan)).visibility == "closing"
    for plan in V4:
        assert Compression.checked(**plan).visibility == "closing"
    new = CompressedQwen3Config(compression=PLANS[0])
    assert new.compression is not None
    assert new.compression["visibility"] == "next"
    assert CompressedQwen3Config.from_dict(new.to_dict()).plan == new.plan


def test_the_zoo_of_version_0_1_reads_at_once() -> None:
    """Its configs and cards lack the setting."""
    for name in zoo.names():
        plan = CompressedQwen3Config.from_pretrained(zoo.folder(name)).plan
        assert plan is None or plan.closing
        assert zoo.card(name).compression == plan


@each_visibility
def test_a_saved_model_keeps_when_its_entries_are_visible(tmp_path: Any, visibility: str) -> None:
    """Config.json names it, and the loaded model reads accordingly."""
    built, ids = subject(PLANS[1], visibility), torch.randint(50, (1, 20))
    built.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_bytes())["compression"]["visibility"] == visibility
    loaded = CompressedQwen3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    with torch.no_grad():
        close(loaded(input_ids=ids).logits, built(input_ids=ids).logits)
