"""A plan against what training really does."""

import re

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from phasescope import UsageError
from phasescope.models import Compression, EntryCache
from phasescope.models.attention import STRIP
from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import RetrievalTask, Text, Training
from phasescope.training.activations import activation_bytes
from phasescope.training.cost import any_text, plan
from phasescope.training.mixture import loss_of, parts_of
from phasescope.training.recipes import RECIPES
from phasescope.training.settings import Progress
from phasescope.training.trainer import new_model
from phasescope.training.work import sequence_flops, sizes_of, work_of

ATTENTION = {  # torch before 2.15 counts the attention of a GPU alone
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(
        *shapes[:3]
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: (
        sdpa_backward_flop_count(*shapes[:4])
    ),
}
GRIDS = [
    None,
    {"width": 8, "stride": 8},
    {"width": 8, "stride": 4, "tail": 16},
    {"width": 4, "stride": 6},
    {"width": 8, "stride": 4, "shift": 4, "compressor": "csa", "binding": True, "tail": 3},
]


def settings_of(grid, **changed):
    compression = grid and Compression(**{"compressor": "scalar_gate", **grid})
    task = RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(8, 32, 32, 40), fillers=24)
    given = {
        "compression": compression,
        "task": task,
        "kv_heads": 1,
        "text": Text(corpus="x", vocabulary=40, rows=2),
    }
    return Training(**{**given, **changed})


def parts(settings, pairs=16):
    return list(parts_of(settings, Progress(pairs=pairs), any_text(settings), 0, 1))


@pytest.mark.parametrize("tokens", [100, 320])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_the_work_of_a_sequence_is_what_a_counter_of_products_counts(grid, tokens):
    """Forward and backward within 3 %, where blocks are kept and where they are computed again."""
    settings = settings_of(grid, text=Text(corpus="x", vocabulary=40, rows=1, tokens=tokens), task=None)
    model, (part,) = new_model(settings), parts(settings)
    with FlopCounterMode(display=False, custom_mapping=ATTENTION) as counter:
        loss_of(model, part, torch.device("cpu"))[0].backward()
    told = sequence_flops(settings, sizes_of(settings), tokens, tokens - 1, block=STRIP)
    assert told == pytest.approx(counter.get_total_flops(), rel=0.03)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_parameters_and_tokens_are_those_of_the_run(grid):
    """Parameters and text exactly; records within 5 % of what 200 steps draw."""
    settings = settings_of(grid, steps=200, rows=2)
    sizes = sizes_of(settings)
    assert sizes.total == sum(param.numel() for param in new_model(settings).parameters())
    work = work_of(settings, sizes, 16)
    assert work.text == 200 * 2 * 256
    drawn = 0
    for step in range(200):
        rng = np.random.default_rng([settings.seed, step])
        drawn += settings.task.batch(settings.rows_at(16), 16, rng)[0].size
    assert work.records == pytest.approx(drawn, rel=0.05)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("grid", GRIDS[:2], ids=str)
def test_activations_are_what_a_step_keeps(grid, precision):
    """The estimate from two thin models is within 15 % of what the whole model keeps of 200 tokens."""
    settings = settings_of(grid, layers=4, hidden_size=128, precision=precision)
    model, held = new_model(settings), {}
    own = {param.untyped_storage().data_ptr() for param in model.parameters()}

    def pack(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in own and x.shape not in weights:
            held[storage.data_ptr()] = storage
        return x

    weights = {shape for p in model.parameters() for shape in (p.shape, p.shape[::-1])}
    ids = torch.randint(40, (1, 200))
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x),
        torch.autocast("cpu", torch.bfloat16, precision == "bf16"),
    ):
        loss = model(input_ids=ids, logits_to_keep=1, use_cache=False).logits.sum()
    del loss
    kept = sum(storage.nbytes() for storage in held.values())
    assert 4 * 200 * activation_bytes(settings, 200) == pytest.approx(kept, rel=0.15)


@pytest.mark.parametrize(
    ("grid", "off"), [({"width": 8, "stride": 8}, 0.02), ({"width": 4, "stride": 6}, 0.08)]
)
def test_the_cache_line_is_what_a_cache_holds(grid, off):
    """1,000 tokens in bfloat16, entries and the rest; with gaps all tokens, whose gate states are not in the line."""
    settings = settings_of(grid)
    model = new_model(settings).to(torch.bfloat16).eval()
    cache = EntryCache(model.config)
    with torch.no_grad():
        model(input_ids=torch.randint(40, (1, 1000)), cache=cache)
    held = sum(layer.nbytes() for layer in cache.layers)
    (line,) = [line for line in plan(settings) if line.startswith("cache")]
    told = float(line.partition("raw, ")[2].split()[0]) * 1e3
    assert held == pytest.approx(told, rel=off)


def test_the_published_grid_is_planned_in_full():
    """Half a billion parameters, some 13 billion tokens, hours on eight devices, and memory for both ways."""
    lines = plan(RECIPES["paper"](None)["w8s8"], processes=8, accelerator="h100")
    assert "545,255,648 parameters" in lines[0]
    assert "12.58B of text" in lines[1]
    assert 1 < float(lines[3].split()[1]) < 20
    assert [line.split()[1] for line in lines if line.startswith("memory")] == ["ddp:", "fsdp:"]
    assert not any("too much" in line for line in lines)


def test_twice_the_devices_take_half_the_time_but_for_muon():
    """Every process of ddp does all of Muon's work, and of fsdp its share."""
    settings = settings_of(
        None, layers=8, hidden_size=512, steps=10**9, task=None, text=Text(corpus="x", vocabulary=40, rows=4)
    )
    lines = [plan(settings, processes=count)[3] for count in (2, 4)]
    two, four = ([float(x.replace(",", "")) for x in re.findall(r"([\d.,]+) hours", line)] for line in lines)
    assert two[1] == pytest.approx(2 * four[1], rel=0.01)
    assert four[0] > 1.01 * four[1]


def test_a_small_model_can_be_tried_out():
    """Seconds of a step at both stages, longer at the longer one."""
    settings = settings_of(None, rows=4, first_pairs=2, max_pairs=4)
    lines = [line for line in plan(settings, accelerator="here") if line.startswith("here")]
    assert ["at 2 records" in lines[0], "at 4 records" in lines[1]] == [True, True]
    assert all(0 < float(line.split()[1]) < 60 for line in lines)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"accelerator": "abacus"}, "unknown accelerator 'abacus'; known: a100"),
        ({"processes": 0}, "at least 1"),
        ({"utilisation": 1.5}, "a share above 0"),
        ({"processes": 5}, "cannot be shared evenly by 5 processes"),
        ({"accelerator": "here"}, "is not tried out here"),
    ],
)
def test_what_cannot_be_planned_is_one_clear_line(given, message):
    """Names, numbers and sizes."""
    wide = (
        settings_of(None, hidden_size=4096, feed_forward=4096, layers=1)
        if given.get("accelerator") == "here"
        else settings_of(None)
    )
    with pytest.raises(UsageError, match=message):
        plan(wide, **given)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("grid", [None, {"width": 8, "stride": 8}], ids=str)
def test_activations_of_a_wide_model_follow_from_narrow_ones(monkeypatch, grid, precision):
    """Exactly what a model of the real width keeps, without its weights."""
    settings = settings_of(grid, hidden_size=192, feed_forward=320, precision=precision)
    counted = activation_bytes(settings, 100)
    monkeypatch.setattr("phasescope.training.activations.WIDE", 32)
    assert activation_bytes(settings, 100) == counted


def test_a_plan_of_a_very_wide_model_needs_little_memory(monkeypatch):
    """No layer of its real size is made."""
    made = []
    to_empty = torch.nn.Module.to_empty

    def noted(self, **given):
        made.extend(param.numel() for param in self.parameters())
        return to_empty(self, **given)

    monkeypatch.setattr(torch.nn.Module, "to_empty", noted)
    assert activation_bytes(settings_of(None, hidden_size=65_536), 100) > 65_536
    assert max(made) < 1_000_000
